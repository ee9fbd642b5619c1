package network

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/berth-run/berth/internal/cri/network/ipam"
)

func TestRangeExhaustedAndFreedAgain(t *testing.T) {
	cfg := testConfig(t)
	cfg.CIDR = netip.PrefixFrom(cfg.CIDR.Addr(), 29) // 8 less network, gateway, broadcast: 5
	n := open(t, cfg)
	for i := range 5 {
		setup(t, n, fmt.Sprint(i))
	}
	extra := newSpace(t)
	_, err := n.Setup(t.Context(), Request{ID: "extra", NetNS: extra.path})
	if !errors.Is(err, ipam.ErrExhausted) || !strings.Contains(err.Error(), "--network-cidr") || !strings.Contains(err.Error(), cfg.CIDR.String()) {
		t.Fatalf("error %v; want one that names the range and the flag", err)
	}
	if strings.Contains(err.Error(), "extra") {
		t.Errorf("error %v names the sandbox, so that no two are alike", err)
	}
	if err := n.Teardown(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	n.Flush()
	if _, err := n.Setup(t.Context(), Request{ID: "extra", NetNS: extra.path}); err != nil {
		t.Fatal(err)
	}
}

func TestAddressIsNotUsedAgainAtOnce(t *testing.T) {
	cfg := testConfig(t)
	n := open(t, cfg)
	a := setup(t, n, "a")
	if err := n.Teardown(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	n.Flush()
	if b := setup(t, n, "b"); b.ip() == a.ip() {
		t.Errorf("%s was used again at once", a.ip())
	}
	if err := n.Teardown(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, cfg) // also across a restart with no pod left
	if c := setup(t, again, "c"); c.ips[0] != a.ips[0].Next().Next() {
		t.Errorf("got %s after the restart, want the third", c.ip())
	}
}

func TestClashNamesTheInterface(t *testing.T) {
	cfg := testConfig(t)
	_, hostIP, _, _, _ := newOutside(t)
	for name, c := range map[string]struct {
		cidr  string
		route string
	}{
		"address":     {netip.MustParseAddr(hostIP).Prev().String() + "/24", ""},
		"wider range": {"198.18.0.0/15", ""},
		"route":       {"10.250.0.0/16", "10.250.7.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			cable, err := netlink.LinkByName(fmt.Sprintf("cable%d", counter))
			if err != nil {
				t.Fatal(err)
			}
			if c.route != "" {
				r := &netlink.Route{LinkIndex: cable.Attrs().Index, Dst: ipNet(netip.MustParsePrefix(c.route))}
				if err := netlink.RouteAdd(r); err != nil {
					t.Fatal(err)
				}
				defer netlink.RouteDel(r)
			}
			cfg.CIDR = netip.MustParsePrefix(c.cidr)
			var clash *ClashError
			if err := CheckRange(cfg.CIDR, cfg.Bridge); !errors.As(err, &clash) || clash.Link != cable.Attrs().Name {
				t.Errorf("CheckRange finds %v; want a clash with %s", err, cable.Attrs().Name)
			}
			n := open(t, cfg)
			err = n.Up(t.Context())
			if !errors.As(err, &clash) || clash.Link != cable.Attrs().Name || !strings.Contains(err.Error(), "--network-cidr") {
				t.Errorf("error %v; want a clash with %s", err, cable.Attrs().Name)
			}
			if _, err := netlink.LinkByName(cfg.Bridge); err == nil {
				t.Error("the bridge was made all the same")
			}
		})
	}
}

// A network that came after the pods', such as a VPN's, is no reason to refuse
// service to pods that run.
func TestLaterClashIsNoError(t *testing.T) {
	cfg := testConfig(t)
	first := open(t, cfg)
	newOutside(t)
	p := setup(t, first, "p")
	cable, err := netlink.LinkByName(fmt.Sprintf("cable%d", counter))
	if err != nil {
		t.Fatal(err)
	}
	r := &netlink.Route{LinkIndex: cable.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("10.0.0.0/8"))}
	if err := netlink.RouteAdd(r); err != nil {
		t.Fatal(err)
	}
	defer netlink.RouteDel(r)
	again, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.serve(t, "p", "tcp", ":80")
	setup(t, again, "q").mustAsk(t, "tcp", p.ip()+":80", "p")
	if err := again.Teardown(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
}

func TestChangeOfRange(t *testing.T) {
	cfg := testConfig(t)
	n := open(t, cfg)
	setup(t, n, "p")
	changed := cfg
	changed.CIDR = netip.MustParsePrefix("10.252.0.0/16")
	if _, err := New(changed); err == nil || !strings.Contains(err.Error(), "pod p still has") {
		t.Fatalf("error %v, want a refusal while pods have the old range", err)
	}
	if err := n.Teardown(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	n.Flush()
	again := open(t, changed)
	if q := setup(t, again, "q"); !changed.CIDR.Contains(q.ips[0]) {
		t.Errorf("got %s, want one of %s", q.ip(), changed.CIDR)
	}
}
