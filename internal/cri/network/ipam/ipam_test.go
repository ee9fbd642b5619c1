package ipam

import (
	"errors"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func taken(addrs ...string) func(netip.Addr) bool {
	set := map[netip.Addr]bool{}
	for _, a := range addrs {
		set[netip.MustParseAddr(a)] = true
	}
	return func(a netip.Addr) bool { return set[a] }
}

func TestNext(t *testing.T) {
	for name, c := range map[string]struct {
		cidr, last string
		taken      []string
		want       string // empty: exhausted
	}{
		"the first pod gets the address after the gateway":   {"10.1.0.0/24", "", nil, "10.1.0.2"},
		"a freed address is not used at once":                {"10.1.0.0/24", "10.1.0.2", nil, "10.1.0.3"},
		"taken addresses are skipped":                        {"10.1.0.0/24", "10.1.0.2", []string{"10.1.0.3", "10.1.0.4"}, "10.1.0.5"},
		"the search goes around and leaves broadcast out":    {"10.1.0.0/29", "10.1.0.6", nil, "10.1.0.2"},
		"the last one given out may be the only free one":    {"10.1.0.0/30", "10.1.0.2", nil, "10.1.0.2"},
		"a full range is an error":                           {"10.1.0.0/30", "", []string{"10.1.0.2"}, ""},
		"a last address of another range counts for nothing": {"10.1.0.0/24", "10.2.0.9", nil, "10.1.0.2"},
		"a last address below the first counts for nothing":  {"10.1.0.0/24", "10.1.0.0", nil, "10.1.0.2"},
		"IPv6 has no broadcast address":                      {"fd00::/126", "fd00::2", nil, "fd00::3"},
		"a range at the end of all addresses ends there":     {"255.255.255.248/29", "255.255.255.254", nil, "255.255.255.250"},
		"an IPv6 range at the end of all addresses too":      {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", nil, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"},
	} {
		t.Run(name, func(t *testing.T) {
			last, _ := netip.ParseAddr(c.last)
			got, err := Next(State{Range: netip.MustParsePrefix(c.cidr), Last: last, Taken: taken(c.taken...)})
			if c.want == "" {
				if !errors.Is(err, ErrExhausted) {
					t.Fatalf("got %v, %v; want ErrExhausted", got, err)
				}
				return
			}
			if err != nil || got.String() != c.want {
				t.Fatalf("got %v, %v; want %s", got, err, c.want)
			}
		})
	}
}

// Whatever is allocated and freed in whatever order, an address is never given
// out twice, never leaves the range, and every address can be used.
func TestNextNeverGivesOutTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cidr := netip.MustParsePrefix(rapid.SampledFrom([]string{"10.0.0.0/28", "10.0.0.0/30", "fd00::/124", "255.255.255.240/28"}).Draw(t, "range"))
		capacity := 1<<(cidr.Addr().BitLen()-cidr.Bits()) - 2
		if cidr.Addr().Is4() {
			capacity--
		}
		used := map[netip.Addr]bool{}
		s := State{Range: cidr, Taken: func(a netip.Addr) bool { return used[a] }}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(used) > 0 && rapid.Bool().Draw(t, "free") {
				for a := range used {
					delete(used, a)
					break
				}
				continue
			}
			got, err := Next(s)
			if len(used) == capacity {
				if !errors.Is(err, ErrExhausted) {
					t.Fatalf("range is full, got %v, %v", got, err)
				}
				continue
			}
			if err != nil || used[got] || !cidr.Contains(got) || got == Gateway(cidr) || got == cidr.Addr() {
				t.Fatalf("got %v, %v with %d of %d taken", got, err, len(used), capacity)
			}
			used[got], s.Last = true, got
		}
	})
}

func TestValidate(t *testing.T) {
	for cidr, ok := range map[string]bool{
		"10.1.0.0/16": true, "fd00::/64": true, "10.1.0.1/16": false, "10.1.0.0/31": false, "127.0.0.0/8": false,
		"224.0.0.0/8": false, "fe80::/64": false, "::ffff:10.0.0.0/112": false, "10.0.0.0/30": true,
	} {
		p, _ := netip.ParsePrefix(cidr)
		if err := Validate(p); (err == nil) != ok {
			t.Errorf("Validate(%s) = %v, want ok=%v", cidr, err, ok)
		}
	}
}
