package network

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// Status says how a network is.
type Status struct {
	Err  error             // why no pod can be connected; nil: it can
	Info map[string]string // for people, by name: JSON or text
}

// Status is always good: what is missing is made for the first pod.
func (n *Network) Status(context.Context) Status { return Status{} }

// Ranges are those of the pods' addresses, IPv4 first.
func (n *Network) Ranges() []netip.Prefix { return n.cidrs }

// UseRanges takes what a cluster has chosen for the pods of this node. A Network
// keeps the ranges that it was made with.
func (n *Network) UseRanges(context.Context, []netip.Prefix) error { return nil }

// ParseRanges reads ranges with a comma between them, as a kubelet writes them.
func ParseRanges(text string) ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		r, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is not a range of addresses: %w", text, err)
		}
		ranges = append(ranges, r.Masked())
	}
	return ranges, nil
}
