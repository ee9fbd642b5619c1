package network

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Protocol is a transport protocol as the API spells it.
type Protocol string

// The protocols a host port may have.
const (
	TCP  Protocol = "TCP"
	UDP  Protocol = "UDP"
	SCTP Protocol = "SCTP"
)

// number is the protocol's number in the IP header; 0 for one we do not know.
func (p Protocol) number() uint8 {
	switch p {
	case TCP:
		return 6
	case UDP:
		return 17
	case SCTP:
		return 132
	}
	return 0
}

// PortMapping leads a port of the host to a port of the pod.
type PortMapping struct {
	// HostIP limits the mapping to one address of the host. Invalid: all of both
	// families; 0.0.0.0: all of IPv4; ::: all of IPv6.
	HostIP        netip.Addr `json:"hostIP,omitzero"`
	HostPort      uint16     `json:"hostPort"`
	ContainerPort uint16     `json:"containerPort"`
	Proto         Protocol   `json:"proto"`
}

// String gives the host's side as people write it: "127.0.0.1:80/tcp".
func (m PortMapping) String() string {
	if m.HostIP.IsValid() {
		return fmt.Sprintf("%s/%s", netip.AddrPortFrom(m.HostIP, m.HostPort), strings.ToLower(string(m.Proto)))
	}
	return fmt.Sprintf("%d/%s", m.HostPort, strings.ToLower(string(m.Proto)))
}

// covers reports whether the mapping concerns addresses of the host of the
// family of addr.
func (m PortMapping) covers(addr netip.Addr) bool {
	return !m.HostIP.IsValid() || m.HostIP.Is4() == addr.Is4()
}

// wildcard reports whether the mapping holds for each address of the host.
func (m PortMapping) wildcard() bool { return !m.HostIP.IsValid() || m.HostIP.IsUnspecified() }

// overlaps reports whether some packet would belong to both mappings.
func (m PortMapping) overlaps(o PortMapping) bool {
	if m.HostPort != o.HostPort || m.Proto != o.Proto {
		return false
	}
	if !m.HostIP.IsValid() || !o.HostIP.IsValid() {
		return true
	}
	if m.HostIP.Is4() != o.HostIP.Is4() {
		return false
	}
	return m.wildcard() || o.wildcard() || m.HostIP == o.HostIP
}

// validatePorts reports everything that is wrong with the ports of one pod.
func validatePorts(ports []PortMapping, dual bool) error {
	var errs []error
	for i, m := range ports {
		switch {
		case m.Proto.number() == 0:
			errs = append(errs, fmt.Errorf("host port %d: protocol %q is not TCP, UDP or SCTP", m.HostPort, m.Proto))
		case m.HostPort == 0 || m.ContainerPort == 0:
			errs = append(errs, fmt.Errorf("host port %s to container port %d: 0 is not a port; use 1–65535", m, m.ContainerPort))
		case m.HostIP.Is4In6() || m.HostIP.Zone() != "":
			errs = append(errs, fmt.Errorf("host port %s: write the host's address as plain IPv4 or IPv6", m))
		case m.HostIP.Is6() && !dual:
			errs = append(errs, fmt.Errorf("host port %s: pods have no IPv6 address here; give the network an IPv6 range or use an IPv4 address", m))
		case m.HostIP == netip.IPv6Loopback():
			errs = append(errs, fmt.Errorf("host port %s: Linux leads no connection from ::1 to a pod; use 127.0.0.1", m))
		}
		for _, o := range ports[:i] {
			if m.overlaps(o) {
				errs = append(errs, fmt.Errorf("host port %s is asked for twice by the same pod", m))
			}
		}
	}
	return errors.Join(errs...)
}

// A PortTakenError says that a host port cannot be given to a pod.
type PortTakenError struct {
	Port PortMapping
	By   string // who has it, in words
}

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("host port %s is taken by %s", e.Port, e.By)
}

// target is one entry of a host port map: packets for Key go to Addr and Port.
type target struct {
	HostIP netip.Addr // invalid: any address of Addr's family
	Proto  uint8
	Host   uint16 // port
	Addr   netip.Addr
	Port   uint16
}

// targets lists the entries that the ports of a pod with these addresses need.
func targets(ports []PortMapping, ips []netip.Addr) []target {
	var ts []target
	for _, m := range ports {
		for _, ip := range ips {
			if !m.covers(ip) {
				continue
			}
			t := target{Proto: m.Proto.number(), Host: m.HostPort, Addr: ip, Port: m.ContainerPort}
			if !m.wildcard() {
				t.HostIP = m.HostIP
			}
			ts = append(ts, t)
		}
	}
	return ts
}
