package agent

import (
	"crypto/sha256"
	"net"
	"net/netip"

	"github.com/berth-run/berth/internal/cri/network"
)

// ValidateCIDR says why a range can't be that of pods on any machine.
func ValidateCIDR(cidr netip.Prefix) error { return network.ValidateRange(cidr) }

// CheckCIDR says why the range that was asked for can't be that of pods on this
// machine; nil if none was asked for.
func (c Config) CheckCIDR() error {
	if !c.CIDR.IsValid() {
		return nil
	}
	c.ShimBinary, c.DemoBinary = "-", "-" // not needed to find the bridge
	if err := c.complete(); err != nil {
		return err
	}
	return network.CheckRange(c.CIDR, c.Bridge)
}

// rootRanges is how many ranges there are for roots that are not the default
// one: the /20s of 10.215.0.0 to 10.222.255.255, beside the default range.
const rootRanges = 8 * 16

// rootCIDR is a range of 4094 addresses for pods of a root that is not the
// default one: that of its bridge, if there is one already; else the one that
// follows from its path, or the next that no interface of the machine uses.
func rootCIDR(root, bridge string) netip.Prefix {
	if own := prefixesOf(bridge); len(own) > 0 {
		return own[0].Masked()
	}
	used := prefixesOf("")
	sum := sha256.Sum256([]byte(root))
	first := int(sum[0])<<8 | int(sum[1])
	for i := range rootRanges {
		if c := rangeAt(first + i); !overlapsAny(c, used) {
			return c
		}
	}
	return rangeAt(first) // the network says what it clashes with
}

func rangeAt(n int) netip.Prefix {
	n %= rootRanges
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(215 + n/16), byte(n % 16 * 16), 0}), 20)
}

func overlapsAny(c netip.Prefix, used []netip.Prefix) bool {
	for _, u := range used {
		if c.Overlaps(u) {
			return true
		}
	}
	return false
}

// prefixesOf are the IPv4 ranges of an interface; with an empty name, of all. One
// that is not there, or can't be asked, has none.
func prefixesOf(name string) []netip.Prefix {
	links, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var found []netip.Prefix
	for _, l := range links {
		if name != "" && l.Name != name {
			continue
		}
		addrs, err := l.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				found = append(found, p)
			}
		}
	}
	return found
}
