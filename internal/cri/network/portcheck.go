package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// checkHostPorts reports a port that a process of the host has, by binding to it
// for a moment. Ports in had lead to the pod already and are not tried: nothing
// else tells whose they are.
func checkHostPorts(ports, had []PortMapping, ips []netip.Addr) error {
	for _, m := range ports {
		if slices.Contains(had, m) {
			continue
		}
		for _, ip := range ips {
			if !m.covers(ip) {
				continue
			}
			addr := m.HostIP
			switch {
			case !m.wildcard():
			case ip.Is4():
				addr = netip.IPv4Unspecified()
			default:
				addr = netip.IPv6Unspecified()
			}
			if err := tryBind(addr, m); err != nil {
				return err
			}
		}
	}
	return nil
}

func tryBind(addr netip.Addr, m PortMapping) error {
	var sa unix.Sockaddr
	domain := unix.AF_INET6
	if addr.Is4() {
		domain = unix.AF_INET
		sa = &unix.SockaddrInet4{Port: int(m.HostPort), Addr: addr.As4()}
	} else {
		sa = &unix.SockaddrInet6{Port: int(m.HostPort), Addr: addr.As16()}
	}
	kind := unix.SOCK_STREAM
	if m.Proto == UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, int(m.Proto.number()))
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // then no process of the host can have it either
	}
	if err != nil {
		return fmt.Errorf("cannot check host port %s: %w", m, err)
	}
	defer unix.Close(fd)
	if domain == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return fmt.Errorf("cannot check host port %s: %w", m, err)
		}
	}
	if m.Proto != UDP {
		// Connections that ended a moment ago do not count. For UDP the option
		// would mean that the port may be shared.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fmt.Errorf("cannot check host port %s: %w", m, err)
		}
	}
	switch err := unix.Bind(fd, sa); {
	case errors.Is(err, unix.EADDRINUSE):
		return &PortTakenError{Port: m, By: portOwner(m)}
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("cannot use host port %s: %s is not an address of this machine", m, addr)
	case err != nil:
		return fmt.Errorf("cannot use host port %s: %w", m, err)
	}
	return nil
}

// portOwner names the process of the host that has the port, as well as it can
// be told. It looks at the sockets themselves: tables like /proc/net/tcp leave
// out listeners that speak MPTCP, which those of Go programs do.
func portOwner(m PortMapping) string {
	const unknown = "a process of the host"
	ours, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return unknown
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return unknown
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", p.Name())
		if ns, err := os.Readlink(filepath.Join(dir, "ns", "net")); err != nil || ns != ours || !hasPort(pid, m) {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			return fmt.Sprintf("process %d of the host", pid)
		}
		return fmt.Sprintf("process %d (%s) of the host", pid, strings.TrimSpace(string(comm)))
	}
	return unknown
}

// hasPort reports whether one of the process's sockets is bound to the port.
func hasPort(pid int, m PortMapping) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(pidfd)
	for _, e := range fds {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !strings.HasPrefix(to, "socket:") {
			continue
		}
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if fd, err := unix.PidfdGetfd(pidfd, number, 0); err == nil {
			has := boundTo(fd, m)
			_ = unix.Close(fd) // a duplicate
			if has {
				return true
			}
		}
	}
	return false
}

// boundTo reports whether the socket keeps others from the port. For TCP that is
// a listener or one that is going to be.
func boundTo(fd int, m PortMapping) bool {
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return false
	}
	if proto == unix.IPPROTO_MPTCP {
		proto = unix.IPPROTO_TCP
	}
	if proto != int(m.Proto.number()) {
		return false
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	var ip netip.Addr
	var port int
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		ip, port = netip.AddrFrom4(sa.Addr), sa.Port
	case *unix.SockaddrInet6:
		ip, port = netip.AddrFrom16(sa.Addr).Unmap(), sa.Port
	default:
		return false
	}
	return port == int(m.HostPort) && (m.wildcard() || ip.IsUnspecified() || ip == m.HostIP)
}
