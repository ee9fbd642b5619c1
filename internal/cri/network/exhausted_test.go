package network

import (
	"net/netip"
	"testing"
)

// An address that is about to be free is waited for: a pod that takes the place
// of another in a range that is full is not told that the range is too small.
func TestAddressThatIsAboutToBeFreeIsWaitedFor(t *testing.T) {
	cfg := testConfig(t)
	cfg.CIDR = netip.PrefixFrom(cfg.CIDR.Addr(), 30) // room for one pod
	n := open(t, cfg)
	before := setup(t, n, "before")
	for _, id := range []string{"after", "later"} {
		if err := n.Teardown(t.Context(), before.id); err != nil {
			t.Fatal(err)
		}
		next := setup(t, n, id)
		if next.ip() != before.ip() {
			t.Errorf("%s has %s, want %s", id, next.ip(), before.ip())
		}
		before = next
	}
}
