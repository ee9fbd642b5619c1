package agent

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestRangesOfRoots(t *testing.T) {
	seen := make(map[netip.Prefix]bool)
	for i := range rootRanges {
		c := rangeAt(i)
		if seen[c] || c != c.Masked() || !netip.MustParsePrefix("10.208.0.0/12").Overlaps(c) {
			t.Errorf("range %d is %s", i, c)
		}
		seen[c] = true
	}
	used := prefixesOf("")
	for i := range 300 {
		if c := rootCIDR(fmt.Sprintf("/tmp/root%d", i), "no-such-bridge"); overlapsAny(c, used) {
			t.Errorf("%s is in use on this machine", c)
		}
	}
	if a, b := rootCIDR("/a", "none"), rootCIDR("/a", "none"); a != b {
		t.Errorf("the same root gives %s and %s", a, b)
	}
	if own := prefixesOf("lo"); len(own) > 0 {
		if c := rootCIDR("/a", "lo"); c != own[0].Masked() {
			t.Errorf("a bridge that is there keeps its range %s, not %s", own[0], c)
		}
	}
}
