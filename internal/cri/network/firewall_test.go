package network

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/nftables"
)

// dropForwarded makes a chain as Docker has iptables make it, or another.
func dropForwarded(t *testing.T, family nftables.TableFamily, table, chain string) *nftables.Chain {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	drop := nftables.ChainPolicyDrop
	tab := c.AddTable(&nftables.Table{Name: table, Family: family})
	ch := c.AddChain(&nftables.Chain{
		Name: chain, Table: tab, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter, Policy: &drop,
	})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.DelTable(tab)
		if err := c.Flush(); err != nil {
			t.Error(err)
		}
	})
	return ch
}

func TestPodsGetThroughAFirewallLikeDockers(t *testing.T) {
	cfg := testConfig(t)
	ch := dropForwarded(t, nftables.TableFamilyIPv4, "filter", "FORWARD")
	n := open(t, cfg)
	outside, hostIP, _, ownIP, _ := newOutside(t)
	p := setup(t, n, "p", tcp(8070, 80))
	p.serve(t, "p", "tcp", ":80")
	outside.serve(t, "world", "tcp", ":80")
	outside.mustAsk(t, "tcp", hostIP+":8070", "p")
	p.mustAsk(t, "tcp", ownIP+":80", "world")

	if err := n.Check(t.Context()); err != nil { // must not add them again
		t.Fatal(err)
	}
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	if rules, err := c.GetRules(ch.Table, ch); err != nil || len(rules) != 2 {
		t.Errorf("%d rules, %v; want 2", len(rules), err)
	}
	if out, err := exec.Command("iptables-nft", "-S", "FORWARD").CombinedOutput(); err == nil {
		for _, want := range []string{"-A FORWARD -i " + cfg.Bridge, "-A FORWARD -o " + cfg.Bridge} {
			if !strings.Contains(string(out), want) {
				t.Errorf("iptables lists %q, want %q in it", out, want)
			}
		}
	} else {
		t.Logf("iptables cannot be asked here: %v", err)
	}
	if err := n.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rules, err := c.GetRules(ch.Table, ch); err != nil || len(rules) != 0 {
		t.Errorf("%d rules left, %v", len(rules), err)
	}
}

func TestOtherFirewallsAreLeftAlone(t *testing.T) {
	cfg := testConfig(t)
	ch := dropForwarded(t, nftables.TableFamilyINet, "mine", "forward")
	n := open(t, cfg)
	setup(t, n, "p")
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	if rules, err := c.GetRules(ch.Table, ch); err != nil || len(rules) != 0 || !n.warned["mine forward"] {
		t.Errorf("%d rules, %v, warned %v; want no rule and a warning", len(rules), err, n.warned)
	}
}
