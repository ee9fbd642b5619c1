package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/cri/network/ipam"
)

// addrGenModeNone keeps the kernel from giving a link a link-local IPv6 address
// by itself: a bridge port needs none, and a hundred of them asking their
// neighbours for duplicates costs time.
const addrGenModeNone = 1

// A ClashError says that the range for pods is in use on the host already.
type ClashError struct {
	CIDR  netip.Prefix // the range for pods
	Other netip.Prefix // what it overlaps with
	Link  string       // interface that has Other
	Route bool         // Other is a route and not an address
}

func (e *ClashError) Error() string {
	kind := "the address"
	if e.Route {
		kind = "a route to"
	}
	return fmt.Sprintf("cannot use %s for pods: interface %s has %s %s; choose another range with --network-cidr", e.CIDR, e.Link, kind, e.Other)
}

// ensureBridge makes the bridge exist, up, with the gateway's addresses, and
// returns its index. A bridge of ours that is there already keeps its ports.
func (n *Network) ensureBridge(h *netlink.Handle) (index int, err error) {
	link, err := h.LinkByName(n.cfg.Bridge)
	switch {
	case err != nil && noSuchLink(err):
		link, err = n.createBridge(h)
	case err == nil && n.halfMade(link):
		link, err = n.markBridge(h)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot create bridge %s: %w", n.cfg.Bridge, err)
	}
	switch {
	case link.Type() != "bridge":
		return 0, fmt.Errorf("cannot use %s as the bridge for pods: an interface of that name exists and is a %s; choose another name", n.cfg.Bridge, link.Type())
	case link.Attrs().Alias != n.alias():
		return 0, fmt.Errorf("cannot use bridge %s: it was not made for %s but belongs to %s; choose another name or clean up its owner", n.cfg.Bridge, n.cfg.StateDir, owner(link.Attrs().Alias))
	}
	index = link.Attrs().Index
	if err := n.checkClash(h, index); err != nil {
		var clash *ClashError
		if !errors.As(err, &clash) || !n.hasGateways(h, link) {
			return 0, err
		}
		// Somebody came later, for example a VPN: the pods were here first.
		n.log.Warn("the range for pods overlaps with another network", "err", err)
	}
	if len(n.cidrs) > 1 {
		// Until the bridge is sure of its link-local address it cannot ask where
		// a pod is, which would cost the first connections a second or two.
		if _, err := setSysctl("net/ipv6/conf/"+n.cfg.Bridge+"/accept_dad", "0"); err != nil {
			return 0, err
		}
	}
	if err := n.setGateways(h, link); err != nil {
		return 0, err
	}
	if err := h.LinkSetUp(link); err != nil {
		return 0, fmt.Errorf("cannot bring bridge %s up: %w", n.cfg.Bridge, err)
	}
	return index, nil
}

func (n *Network) createBridge(h *netlink.Handle) (netlink.Link, error) {
	if err := n.checkClash(h, 0); err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = n.cfg.Bridge
	attrs.MTU = n.mtu
	// A bridge without a fixed address takes the lowest of its ports and changes
	// it as pods come and go, under the feet of all who have it cached.
	attrs.HardwareAddr = hardwareAddr(ipam.Gateway(n.cfg.CIDR))
	if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return h.LinkByName(n.cfg.Bridge) // somebody else was faster
		}
		return nil, err
	}
	return n.markBridge(h)
}

// markBridge marks the bridge as ours, for which the kernel wants a message after
// the one that creates it.
func (n *Network) markBridge(h *netlink.Handle) (netlink.Link, error) {
	br, err := h.LinkByName(n.cfg.Bridge)
	if err != nil {
		return nil, err
	}
	if err := h.LinkSetAlias(br, n.alias()); err != nil {
		return nil, errors.Join(err, h.LinkDel(br))
	}
	return h.LinkByName(n.cfg.Bridge)
}

// alias marks the bridge as ours.
func (n *Network) alias() string { return bridgeAlias + n.cfg.StateDir }

// halfMade reports whether the bridge is one that we were killed over before it
// was marked: with the address that only we give, and without anybody's mark.
func (n *Network) halfMade(br netlink.Link) bool {
	return br.Type() == "bridge" && br.Attrs().Alias == "" &&
		bytes.Equal(br.Attrs().HardwareAddr, hardwareAddr(ipam.Gateway(n.cfg.CIDR)))
}

func owner(alias string) string {
	if dir, ok := strings.CutPrefix(alias, bridgeAlias); ok {
		return "the berth network in " + dir
	}
	return "somebody else"
}

// hasGateways reports whether the bridge has the first address of each range.
func (n *Network) hasGateways(h *netlink.Handle, br netlink.Link) bool {
	have, err := complete(func() ([]netlink.Addr, error) { return h.AddrList(br, netlink.FAMILY_ALL) })
	found := map[netip.Prefix]bool{}
	for _, a := range have {
		found[prefixOf(a.IPNet)] = true
	}
	for _, cidr := range n.cidrs {
		if !found[netip.PrefixFrom(ipam.Gateway(cidr), cidr.Bits())] {
			return false
		}
	}
	return err == nil
}

// setGateways gives the bridge the first address of each range and takes others
// away.
func (n *Network) setGateways(h *netlink.Handle, br netlink.Link) error {
	have, err := complete(func() ([]netlink.Addr, error) { return h.AddrList(br, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("cannot list addresses of bridge %s: %w", n.cfg.Bridge, err)
	}
	missing := map[netip.Prefix]bool{}
	for _, cidr := range n.cidrs {
		missing[netip.PrefixFrom(ipam.Gateway(cidr), cidr.Bits())] = true
	}
	for _, a := range have {
		p := prefixOf(a.IPNet)
		switch {
		case missing[p]:
			delete(missing, p)
		case p.Addr().IsLinkLocalUnicast():
		default:
			if err := h.AddrDel(br, &netlink.Addr{IPNet: a.IPNet}); err != nil {
				return fmt.Errorf("cannot remove address %s of bridge %s: %w", p, n.cfg.Bridge, err)
			}
		}
	}
	for p := range missing {
		if err := h.AddrAdd(br, newAddr(p)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("cannot give bridge %s the address %s: %w", n.cfg.Bridge, p, err)
		}
	}
	return nil
}

// checkClash looks for an address or route of the host, other than of the link
// own, that overlaps with the ranges for pods. A default route does not count.
func (n *Network) checkClash(h *netlink.Handle, own int) error {
	links, err := complete(h.LinkList)
	if err != nil {
		return fmt.Errorf("cannot list interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	addrs, err := complete(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("cannot list addresses: %w", err)
	}
	for _, a := range addrs {
		if c, hit := n.overlap(a.IPNet); hit && a.LinkIndex != own {
			return &ClashError{CIDR: c, Other: prefixOf(a.IPNet), Link: names[a.LinkIndex]}
		}
	}
	routes, err := complete(func() ([]netlink.Route, error) { return h.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("cannot list routes: %w", err)
	}
	for _, r := range routes {
		if c, hit := n.overlap(r.Dst); hit && r.LinkIndex != own {
			return &ClashError{CIDR: c, Other: prefixOf(r.Dst), Link: names[r.LinkIndex], Route: true}
		}
	}
	return nil
}

func (n *Network) overlap(other *net.IPNet) (netip.Prefix, bool) {
	p := prefixOf(other)
	for _, c := range n.cidrs {
		if p.IsValid() && p.Bits() > 0 && c.Overlaps(p) {
			return c, true
		}
	}
	return netip.Prefix{}, false
}

// setSysctls turns on what leading packets to and from pods needs.
func (n *Network) setSysctls() error {
	bridge := "net/ipv4/conf/" + n.cfg.Bridge + "/"
	for _, name := range []string{bridge + "route_localnet", bridge + "forwarding"} {
		if _, err := setSysctl(name, "1"); err != nil {
			return err
		}
	}
	for _, cidr := range n.cidrs {
		name := "net/ipv4/ip_forward"
		if cidr.Addr().Is6() {
			name = "net/ipv6/conf/all/forwarding"
			if err := n.keepRouterAdverts(); err != nil {
				return err
			}
		}
		changed, err := setSysctl(name, "1")
		if err != nil {
			return err
		}
		if changed {
			n.log.Info("turned packet forwarding on, pods need it", "sysctl", strings.ReplaceAll(name, "/", "."))
			if err := n.leases.rememberForward(name); err != nil {
				n.log.Warn("cannot remember that packet forwarding was off before", "err", err)
			}
		}
	}
	return nil
}

// keepRouterAdverts lets links that get their IPv6 routes from a router go on
// listening to it: a host that forwards does not, unless told so.
func (n *Network) keepRouterAdverts() error {
	if forwarding, err := readSysctl("net/ipv6/conf/all/forwarding"); err != nil || forwarding == "1" {
		return err
	}
	entries, err := os.ReadDir("/proc/sys/net/ipv6/conf")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := "net/ipv6/conf/" + e.Name() + "/accept_ra"
		if e.Name() == "all" || e.Name() == "default" || e.Name() == "lo" || e.Name() == n.cfg.Bridge {
			continue
		}
		if v, err := readSysctl(name); err != nil || v != "1" {
			continue
		}
		if _, err := setSysctl(name, "2"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func readSysctl(name string) (string, error) {
	b, err := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(b)), err
}

// setSysctl reports whether the value had to be changed.
func setSysctl(name, value string) (changed bool, err error) {
	have, err := readSysctl(name)
	if err == nil && have == value {
		return false, nil
	}
	if err == nil {
		err = os.WriteFile("/proc/sys/"+name, []byte(value), 0)
	}
	if err != nil {
		return false, fmt.Errorf("cannot set sysctl %s to %s: %w", strings.ReplaceAll(name, "/", "."), value, err)
	}
	return true, nil
}

// ipv6Works reports whether the kernel has IPv6 and it is not turned off.
func ipv6Works() bool {
	v, err := readSysctl("net/ipv6/conf/all/disable_ipv6")
	return err == nil && v == "0"
}

// hostMTU is the MTU of the link of the default route, or 1500.
func hostMTU(h *netlink.Handle) int {
	routes, err := complete(func() ([]netlink.Route, error) { return h.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return 1500
	}
	for _, r := range routes {
		if p := prefixOf(r.Dst); p.IsValid() && p.Bits() > 0 {
			continue
		}
		if l, err := h.LinkByIndex(r.LinkIndex); err == nil && l.Attrs().MTU >= 1280 {
			return min(l.Attrs().MTU, 1500)
		}
	}
	return 1500
}

// hardwareAddr derives a link's address from its IPv4 address, so that an
// address that is used again does not contradict what neighbours remember. The
// first two bytes mark a locally administered address.
func hardwareAddr(ip netip.Addr) net.HardwareAddr {
	b := ip.As4()
	return net.HardwareAddr{0x0a, 0xbe, b[0], b[1], b[2], b[3]}
}

func newAddr(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		// No one else can have it, and waiting for duplicate address detection
		// would delay the pod by a second.
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefixOf is invalid for nil, which stands for a default route.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits)
}
