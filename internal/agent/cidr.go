package agent

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/berth-run/berth/internal/cri/network"
)

// Ranges are what pods' addresses come from: an IPv4 range and, if pods get both
// families, an IPv6 range.
type Ranges struct{ V4, V6 netip.Prefix }

// ParseRanges reads IPv4 or IPv4,IPv6, and says why they can't be the ranges of
// pods on any machine.
func ParseRanges(text string) (Ranges, error) {
	first, second, both := strings.Cut(text, ",")
	var r Ranges
	var err error
	if r.V4, err = netip.ParsePrefix(strings.TrimSpace(first)); err == nil && both {
		r.V6, err = netip.ParsePrefix(strings.TrimSpace(second))
	}
	switch {
	case err != nil:
		return Ranges{}, fmt.Errorf("--network-cidr is %q, want a range such as 10.99.0.0/16, or one of each family such as 10.99.0.0/16,fd00:99::/64", text)
	case !r.V4.Addr().Is4() && !both:
		return Ranges{}, fmt.Errorf("--network-cidr is %s: it is not IPv4, and pods need that; for both, say 10.99.0.0/16,%s", text, text)
	}
	if err := network.ValidateRange(r.V4); err != nil {
		return Ranges{}, err
	}
	if both {
		if err := network.ValidateRange6(r.V6); err != nil {
			return Ranges{}, err
		}
	}
	return r, nil
}

func (r Ranges) String() string {
	if !r.V6.IsValid() {
		return r.V4.String()
	}
	return r.V4.String() + "," + r.V6.String()
}

// CheckCIDR says why the ranges that were asked for can't be those of pods on this
// machine; nil if none were asked for.
func (c Config) CheckCIDR() error {
	c.ShimBinary, c.DemoBinary = "-", "-" // not needed to find the bridge
	if err := c.complete(); err != nil {
		return err
	}
	for _, cidr := range []netip.Prefix{c.CIDR, c.CIDR6} {
		if !cidr.IsValid() {
			continue
		}
		if err := network.CheckRange(cidr, c.Bridge); err != nil {
			return err
		}
	}
	return nil
}

// chooseRanges fills in ranges where none are asked for: those of the bridge, if
// there is one already, because pods may have addresses of them; else those that
// the root has by default.
func (c *Config) chooseRanges() {
	switch own := rangesOf(c.Bridge); {
	case c.CIDR.IsValid():
	case own.V4.IsValid():
		c.CIDR, c.CIDR6 = own.V4, own.V6
	case c.home.Mark == "":
		c.CIDR = network.DefaultCIDR()
	default:
		c.CIDR = rootCIDR(c.home.Root)
	}
	c.CIDR, c.CIDR6 = c.CIDR.Masked(), c.CIDR6.Masked()
}

// rangesOf are the ranges of an interface, the first of each family.
func rangesOf(link string) (r Ranges) {
	for _, p := range prefixesOf(link) {
		switch {
		case p.Addr().IsLinkLocalUnicast():
		case p.Addr().Is4() && !r.V4.IsValid():
			r.V4 = p.Masked()
		case p.Addr().Is6() && !r.V6.IsValid():
			r.V6 = p.Masked()
		}
	}
	return r
}

// rootRanges is how many ranges there are for roots that are not the default
// one: the /20s of 10.215.0.0 to 10.222.255.255, beside the default range.
const rootRanges = 8 * 16

// rootCIDR is a range of 4094 addresses for pods of a root that is not the
// default one: the one that follows from its path, or the next that no interface
// of the machine uses.
func rootCIDR(root string) netip.Prefix {
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

// prefixesOf are the addresses of an interface with their ranges; with an empty
// name, of all. One that is not there, or can't be asked, has none.
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
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				found = append(found, p)
			}
		}
	}
	return found
}
