package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/cri/network/ipam"
)

const (
	podLink       = "eth0" // the name of the link inside the pod
	loopbackIndex = 1      // of lo in each namespace
)

// namespace is an open network namespace of a pod.
type namespace struct {
	file  *os.File
	inode uint64
}

func openNamespace(path string) (*namespace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open network namespace: %w", err)
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(int(f.Fd()), &st), unix.Fstatfs(int(f.Fd()), &fs)); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot inspect network namespace %s: %w", path, err), f.Close())
	}
	if fs.Type != unix.NSFS_MAGIC {
		return nil, errors.Join(fmt.Errorf("cannot use %s as a network namespace: it is an ordinary file, nothing is mounted on it", path), f.Close())
	}
	return &namespace{file: f, inode: st.Ino}, nil
}

func (s *namespace) fd() int { return int(s.file.Fd()) }

func (s *namespace) close() { _ = s.file.Close() } // opened for reading

// plug connects the namespace with the bridge as the lease says.
func (n *Network) plug(h *netlink.Handle, ns *namespace, l Lease) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex = l.Link, n.mtu, n.bridgeIndex()
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: podLink,
		PeerNamespace: netlink.NsFd(ns.fd()), PeerHardwareAddr: hardwareAddr(l.IPs[0]),
	}
	// One call makes both ends, each in its namespace, and the bridge's port.
	err := h.LinkAdd(veth)
	if errors.Is(err, unix.EEXIST) {
		// Left by an attempt that was cut off.
		if err = delLink(h, l.Link); err == nil {
			err = h.LinkAdd(veth)
		}
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("cannot create %s in %s: it is there already", podLink, ns.file.Name())
	case errors.Is(err, unix.EXFULL):
		return fmt.Errorf("cannot connect the pod with bridge %s: it has 1023 ports, the most that Linux allows: %w", n.cfg.Bridge, err)
	case err != nil:
		return fmt.Errorf("cannot create link %s on bridge %s: %w", l.Link, n.cfg.Bridge, err)
	}
	if err := errors.Join(
		wrap("keep IPv6 off the port", ignoreNoIPv6(h.LinkSetIP6AddrGenMode(veth, addrGenModeNone))),
		wrap("let the port send back", h.LinkSetHairpin(veth, true)),
		wrap("bring the port up", h.LinkSetUp(veth)),
	); err != nil {
		return fmt.Errorf("cannot set up link %s: %w", l.Link, err)
	}
	if err := n.configure(ns, l.IPs); err != nil {
		return fmt.Errorf("cannot set up %s in %s: %w", podLink, ns.file.Name(), err)
	}
	if err := n.introduce(h, veth.Attrs().Index, l.IPs); err != nil {
		return fmt.Errorf("cannot make the pod known to bridge %s: %w", n.cfg.Bridge, err)
	}
	// Last, for it says that all of the above was done.
	if err := h.LinkSetAlias(veth, l.ID); err != nil {
		return fmt.Errorf("cannot mark link %s as complete: %w", l.Link, err)
	}
	return nil
}

// configure sets addresses and routes inside the pod.
func (n *Network) configure(ns *namespace, ips []netip.Addr) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(ns.fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot enter it: %w", err)
	}
	defer h.Close()
	if err := loopbackUp(h); err != nil {
		return err
	}
	eth, err := h.LinkByName(podLink)
	if err != nil {
		return err
	}
	if len(ips) == 1 {
		// Without a range for it, IPv6 would only talk to itself.
		if err := ignoreNoIPv6(h.LinkSetIP6AddrGenMode(eth, addrGenModeNone)); err != nil {
			return fmt.Errorf("cannot keep IPv6 off: %w", err)
		}
	}
	if err := h.LinkSetUp(eth); err != nil {
		return fmt.Errorf("cannot bring it up: %w", err)
	}
	for i, ip := range ips {
		if err := h.AddrAdd(eth, newAddr(netip.PrefixFrom(ip, n.cidrs[i].Bits()))); err != nil {
			return fmt.Errorf("cannot add address %s: %w", ip, err)
		}
		gateway := ipam.Gateway(n.cidrs[i])
		if err := h.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: gateway.AsSlice()}); err != nil {
			return fmt.Errorf("cannot add the default route: %w", err)
		}
		if err := h.NeighSet(neighbour(eth.Attrs().Index, gateway, hardwareAddr(ipam.Gateway(n.cfg.CIDR)))); err != nil {
			return fmt.Errorf("cannot make the gateway known: %w", err)
		}
	}
	return nil
}

// LoopbackUp brings up the loopback interface of a network namespace.
func LoopbackUp(path string) error {
	ns, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer ns.close()
	h, err := netlink.NewHandleAt(netns.NsHandle(ns.fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot enter network namespace %s: %w", path, err)
	}
	defer h.Close()
	return loopbackUp(h)
}

func loopbackUp(h *netlink.Handle) error {
	lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: loopbackIndex}}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("cannot bring loopback up: %w", err)
	}
	return nil
}

// introduce tells the host and its bridge where the pod is, so that they need not
// ask. All namespaces together may know about a thousand neighbours that they
// found by asking, beyond which the kernel drops packets; entries made by hand do
// not count.
func (n *Network) introduce(h *netlink.Handle, port int, ips []netip.Addr) error {
	mac := hardwareAddr(ips[0])
	err := h.NeighSet(&netlink.Neigh{
		LinkIndex: port, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER, State: netlink.NUD_NOARP, HardwareAddr: mac,
	})
	for _, ip := range ips {
		err = errors.Join(err, h.NeighSet(neighbour(n.bridgeIndex(), ip, mac)))
	}
	return err
}

// takeLeave is the opposite of introduce; what the bridge knew of the port goes
// with the port. An entry that stays does no harm: it is right for the next pod
// with the address, too.
func (n *Network) takeLeave(h *netlink.Handle, ips []netip.Addr) {
	index := n.bridgeIndex()
	if index == 0 {
		br, err := h.LinkByName(n.cfg.Bridge)
		if err != nil {
			return // and with it went what it knew
		}
		index = br.Attrs().Index
	}
	for _, ip := range ips {
		if err := h.NeighDel(neighbour(index, ip, hardwareAddr(ips[0]))); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			n.log.Debug("cannot forget the neighbour entry of a pod", "ip", ip, "err", err)
		}
	}
}

func neighbour(link int, ip netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	family := unix.AF_INET6
	if ip.Is4() {
		family = unix.AF_INET
	}
	return &netlink.Neigh{LinkIndex: link, Family: family, State: netlink.NUD_PERMANENT, IP: ip.AsSlice(), HardwareAddr: mac}
}

// plugged reports whether the lease's link was set up to the end and is on the
// bridge.
func (n *Network) plugged(h *netlink.Handle, l Lease) bool {
	link, err := h.LinkByName(l.Link)
	return err == nil && link.Attrs().MasterIndex == n.bridgeIndex() && link.Attrs().Alias == l.ID
}

// delLink deletes a link now, which takes the kernel some 30 ms. One that does
// not exist is no error.
func delLink(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkDel(link)
	}
	if err != nil && !noSuchLink(err) {
		return fmt.Errorf("cannot delete link %s: %w", name, err)
	}
	return nil
}

// markLink puts a link into a group, to be deleted together with the others in
// it.
func markLink(name string, group uint32) error {
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	req.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil && !noSuchLink(err) {
		return fmt.Errorf("cannot mark link %s for deletion: %w", name, err)
	}
	return nil
}

// delGroup deletes all links of a group at the price of one.
func delGroup(group uint32) error {
	req := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil && !noSuchLink(err) {
		return fmt.Errorf("cannot delete links of group %d: %w", group, err)
	}
	return nil
}

func noSuchLink(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound) || errors.Is(err, unix.ENODEV)
}

// ignoreNoIPv6 drops the error of a kernel that has no IPv6 to be kept off.
func ignoreNoIPv6(err error) error {
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil
	}
	return err
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot %s: %w", doing, err)
}
