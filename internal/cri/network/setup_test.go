package network

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/cri/network/ipam"
)

func TestSetupIsIdempotent(t *testing.T) {
	n := open(t, testConfig(t))
	p := setup(t, n, "p", tcp(8010, 80))
	for range 3 {
		res, err := n.Setup(t.Context(), Request{ID: "p", NetNS: p.path, Ports: []PortMapping{tcp(8010, 80)}})
		if err != nil || !slices.Equal(res.IPs, p.ips) {
			t.Fatalf("got %v, %v; want %v again", res.IPs, err, p.ips)
		}
	}
	if ls := n.List(); len(ls) != 1 {
		t.Errorf("leases %+v, want one", ls)
	}
}

func TestSetupAgainReplacesThePorts(t *testing.T) {
	n := open(t, testConfig(t))
	p := setup(t, n, "p", tcp(8011, 80))
	p.serve(t, "p", "tcp", ":80")
	if _, err := n.Setup(t.Context(), Request{ID: "p", NetNS: p.path, Ports: []PortMapping{tcp(8012, 80)}}); err != nil {
		t.Fatal(err)
	}
	host.mustAsk(t, "tcp", "127.0.0.1:8012", "p")
	if _, _, err := host.ask("tcp", "127.0.0.1:8011"); err == nil {
		t.Error("the old port still answers")
	}
}

func TestSetupAfterTheBridgeWasDeleted(t *testing.T) {
	n := open(t, testConfig(t))
	p := setup(t, n, "p")
	p.serve(t, "p", "tcp", ":80")
	br, err := netlink.LinkByName(n.cfg.Bridge)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(br); err != nil {
		t.Fatal(err)
	}
	q := setup(t, n, "q")
	q.mustAsk(t, "tcp", p.ip()+":80", "p")
	host.mustAsk(t, "tcp", p.ip()+":80", "p")
}

// The kernel's table of neighbours is small and shared by all namespaces.
func TestNobodyNeedsToAskForPods(t *testing.T) {
	n := open(t, testConfig(t))
	p := setup(t, n, "p")
	p.serve(t, "p", "tcp", ":80")
	host.mustAsk(t, "tcp", p.ip()+":80", "p")
	neighbours := func(in space) (asked, told int) {
		in.do(t, func() error {
			h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer h.Close()
			list, err := h.NeighList(0, netlink.FAMILY_V4)
			for _, e := range list {
				switch {
				case !n.cfg.CIDR.Contains(netip.AddrFrom4([4]byte(e.IP.To4()))):
				case e.State == netlink.NUD_PERMANENT:
					told++
				default:
					asked++
				}
			}
			return err
		})
		return asked, told
	}
	for in, name := range map[space]string{host: "host", p.space: "pod"} {
		if asked, told := neighbours(in); asked != 0 || told != 1 {
			t.Errorf("%s: %d neighbours asked for, %d told of; want 0 and 1", name, asked, told)
		}
	}
	if err := n.Teardown(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	n.Flush()
	if _, told := neighbours(host); told != 0 {
		t.Errorf("%d entries were left", told)
	}
}

func TestNotANamespace(t *testing.T) {
	n := open(t, testConfig(t))
	file := t.TempDir() + "/plain"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: "nothing is mounted on it", file + "x": "no such file"} {
		if _, err := n.Setup(t.Context(), Request{ID: "p", NetNS: path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestConfigProblemsAreReportedAtOnce(t *testing.T) {
	_, err := New(Config{Bridge: "much too long a name", CIDR: netip.MustParsePrefix("10.0.0.1/8"), MTU: 3})
	for _, want := range []string{"StateDir", "much too long", "unlike 10.0.0.0/8; choose", "MTU"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not speak of %q", err, want)
		}
	}
}

func TestTwoNetworksDoNotDisturbEachOther(t *testing.T) {
	cfgA, cfgB := testConfig(t), testConfig(t)
	a, b := open(t, cfgA), open(t, cfgB)
	p, q := setup(t, a, "same", tcp(8050, 80)), setup(t, b, "same", tcp(8051, 80))
	p.serve(t, "p", "tcp", ":80")
	q.serve(t, "q", "tcp", ":80")
	q.mustAsk(t, "tcp", ipam.Gateway(cfgB.CIDR).String()+":8050", "p")
	if err := a.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	host.mustAsk(t, "tcp", "127.0.0.1:8051", "q")
}

// An agent was killed over the bridge between making it and marking it.
func TestBridgeThatWasHalfMade(t *testing.T) {
	for name, after := range map[string]func(n *Network) error{
		"is used":       func(n *Network) error { return n.Up(t.Context()) },
		"is cleaned up": func(*Network) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			n := open(t, cfg)
			if err := n.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			br, err := netlink.LinkByName(cfg.Bridge)
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.LinkSetAlias(br, ""); err != nil {
				t.Fatal(err)
			}
			again := open(t, cfg)
			if err := after(again); err != nil {
				t.Fatal(err)
			}
			if err := again.Cleanup(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := netlink.LinkByName(cfg.Bridge); err == nil {
				t.Error("the bridge is left")
			}
		})
	}
}

// A bridge that only has the name is not ours.
func TestBridgeWithoutAMark(t *testing.T) {
	cfg := testConfig(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = cfg.Bridge
	theirs := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(theirs) })
	n := open(t, cfg)
	if err := n.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "belongs to somebody else") {
		t.Errorf("error %v, want one that refuses the bridge", err)
	}
	if err := n.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.LinkByName(cfg.Bridge); err != nil {
		t.Errorf("cleanup took somebody else's bridge: %v", err)
	}
}

func TestBridgeOfSomebodyElse(t *testing.T) {
	cfg := testConfig(t)
	owner := open(t, cfg)
	if err := owner.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.StateDir, other.CIDR = t.TempDir(), netip.MustParsePrefix("10.251.0.0/16")
	n := open(t, other)
	if err := n.Up(t.Context()); err == nil || !strings.Contains(err.Error(), cfg.StateDir) {
		t.Errorf("error %v, want one that names %s", err, cfg.StateDir)
	}
	if err := n.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.LinkByName(cfg.Bridge); err != nil {
		t.Errorf("cleanup took somebody else's bridge: %v", err)
	}
}
