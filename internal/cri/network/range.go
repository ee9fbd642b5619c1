package network

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/cri/network/ipam"
)

// CheckRange says why a Network with that bridge could not use a range on this
// machine: it is no range for pods, or it clashes with what the machine uses
// already (a *ClashError). It changes nothing.
func CheckRange(cidr netip.Prefix, bridge string) error {
	validate := ValidateRange
	if cidr.IsValid() && !cidr.Addr().Is4() {
		validate = ValidateRange6
	}
	if err := validate(cidr); err != nil {
		return err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot look at the machine's network: %w", err)
	}
	defer h.Close()
	own := 0
	if link, err := h.LinkByName(bridge); err == nil {
		own = link.Attrs().Index
		addrs, err := complete(func() ([]netlink.Addr, error) { return h.AddrList(link, netlink.FAMILY_ALL) })
		gateway := netip.PrefixFrom(ipam.Gateway(cidr), cidr.Bits())
		if err == nil && slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return prefixOf(a.IPNet) == gateway }) {
			return nil // whoever clashes with it came later
		}
	}
	return (&Network{cidrs: []netip.Prefix{cidr}}).checkClash(h, own)
}
