// Package ipam chooses addresses for pods out of one range.
//
// It is pure: it keeps nothing and asks nobody. The caller says which
// addresses are taken and which one was given out last, and stores what it is
// told. Addresses are given out round robin, so that one that was just freed is
// the last to be used again: peers and caches that still know its former owner
// get time to forget it.
package ipam

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrExhausted is returned when every address of the range is taken.
var ErrExhausted = errors.New("no address is left")

// State is what the choice depends on.
type State struct {
	Range netip.Prefix               // masked; the first address names the network, the second is the gateway
	Last  netip.Addr                 // given out last; invalid or outside of Range: begin at the start
	Taken func(addr netip.Addr) bool // must not change while Next runs
}

// Next returns the first free address after s.Last, going around at the end of
// the range. The network's own address, the gateway and, for IPv4, the
// broadcast address are never returned.
func Next(s State) (netip.Addr, error) {
	first := Gateway(s.Range).Next()
	start := first
	if s.Last.IsValid() && s.Range.Contains(s.Last) && first.Compare(s.Last) <= 0 {
		start = s.Last.Next()
	}
	if !usable(s.Range, start) {
		start = first
	}
	for addr := start; ; {
		if usable(s.Range, addr) && !s.Taken(addr) {
			return addr, nil
		}
		addr = addr.Next()
		if !usable(s.Range, addr) {
			addr = first
		}
		if addr == start {
			return netip.Addr{}, fmt.Errorf("%w in %s", ErrExhausted, s.Range)
		}
	}
}

// Gateway returns the address that the host itself has in the range.
func Gateway(r netip.Prefix) netip.Addr { return r.Masked().Addr().Next() }

// Validate reports why r cannot be used as a range for pods.
func Validate(r netip.Prefix) error {
	switch {
	case !r.IsValid():
		return errors.New("it is not a CIDR")
	case r != r.Masked():
		return fmt.Errorf("it has bits set behind the mask, unlike %s", r.Masked())
	case r.Addr().Is4In6():
		return errors.New("it is an IPv4 range written as IPv6")
	case r.Addr().BitLen()-r.Bits() < 2:
		return fmt.Errorf("it is too small; a /%d is the smallest with room for a pod", r.Addr().BitLen()-2)
	case r.Addr().IsMulticast(), r.Addr().IsLoopback(), r.Addr().IsLinkLocalUnicast(), r.Addr().IsUnspecified():
		return errors.New("it is reserved; use a private range such as 10.214.0.0/16")
	}
	return nil
}

// usable reports whether addr may be given to a pod.
func usable(r netip.Prefix, addr netip.Addr) bool {
	return addr.IsValid() && r.Contains(addr) && !(addr.Is4() && !r.Contains(addr.Next()))
}
