package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/home"
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
		if c := rootCIDR(fmt.Sprintf("/tmp/root%d", i)); overlapsAny(c, used) {
			t.Errorf("%s is in use on this machine", c)
		}
	}
	if a, b := rootCIDR("/a"), rootCIDR("/a"); a != b {
		t.Errorf("the same root gives %s and %s", a, b)
	}
}

func TestRangesInUseStay(t *testing.T) {
	asked := netip.MustParsePrefix("10.99.1.0/24")
	a := home.Home{Root: "/a", Mark: "-a"}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"by default":                      {Config{Bridge: "none"}, "10.214.0.0/16"},
		"of a root":                       {Config{home: a, Bridge: "none"}, rootCIDR("/a").String()},
		"as asked":                        {Config{home: a, Bridge: "lo", CIDR: asked}, asked.String()},
		"those of a bridge that is there": {Config{home: a, Bridge: "lo"}, rangesOf("lo").String()},
		"also for the default root":       {Config{Bridge: "lo"}, rangesOf("lo").String()},
	} {
		c.cfg.chooseRanges()
		if got := (Ranges{c.cfg.CIDR, c.cfg.CIDR6}).String(); got != c.want {
			t.Errorf("%s: ranges %s, want %s", name, got, c.want)
		}
	}
	if lo := rangesOf("lo"); lo.V4.String() != "127.0.0.0/8" {
		t.Errorf("the ranges of lo are %s", lo)
	}
}

func TestRangesAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]string{
		"10.99.0.0/16":                     "10.99.0.0/16",
		"10.99.0.0/16,fd00:99::/64":        "10.99.0.0/16,fd00:99::/64",
		" 10.99.0.0/16 , fd00:99::/64 ":    "10.99.0.0/16,fd00:99::/64",
		"":                                 "want a range such as",
		"10.99.0.0/16,":                    "want a range such as",
		"10.99.0.0":                        "want a range such as",
		"fd00:99::/64":                     "for both, say 10.99.0.0/16,fd00:99::/64",
		"fd00:99::/64,10.99.0.0/16":        "it is not IPv4",
		"10.99.0.0/16,10.98.0.0/16":        "it is not IPv6",
		"10.99.0.0/16,fd00::1/64":          "unlike fd00::/64",
		"10.99.0.0/16,fe80::/64":           "it is reserved",
		"10.99.0.0/16,::ffff:1.2.3.0/120":  "it is an IPv4 range written as IPv6",
		"10.99.0.0/16,fd00::/64,fd01::/64": "want a range such as",
	} {
		r, err := ParseRanges(text)
		got := r.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q gives %s, want %s", text, got, want)
		}
	}
}
