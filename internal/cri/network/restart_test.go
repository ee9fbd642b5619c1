package network

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The agent is killed: the next one finds the pods' addresses and ports, also
// if somebody flushed the rules or deleted the bridge in the meantime.
func TestRestart(t *testing.T) {
	cfg := testConfig(t)
	first := open(t, cfg)
	p := setup(t, first, "p", tcp(8020, 80), udp(5320, 53))
	p.serve(t, "p", "tcp", ":80")

	damages := map[string]func() error{
		"nothing else happened": func() error { return nil },
		"rules were flushed":    first.nft.drop,
		"bridge was deleted": func() error {
			br, err := netlink.LinkByName(cfg.Bridge)
			if err != nil {
				return err
			}
			return netlink.LinkDel(br)
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			n, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			if err := n.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			host.mustAsk(t, "tcp", "127.0.0.1:8020", "p")
			if got := ports(t, n); got != 2 {
				t.Errorf("%d host ports, want 2", got)
			}
			res, err := n.Setup(t.Context(), Request{ID: "p", NetNS: p.path, Ports: []PortMapping{tcp(8020, 80), udp(5320, 53)}})
			if err != nil || !slices.Equal(res.IPs, p.ips) {
				t.Errorf("after the restart %v, %v; want %v", res.IPs, err, p.ips)
			}
			q := setup(t, n, "q-"+name)
			if slices.Contains(p.ips, q.ips[0]) {
				t.Errorf("%s was given out twice", q.ips[0])
			}
			if err := n.Teardown(t.Context(), q.id); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestCheckRepairsWhatOthersRemoved(t *testing.T) {
	n := open(t, testConfig(t))
	p := setup(t, n, "p", tcp(8021, 80))
	p.serve(t, "p", "tcp", ":80")
	if err := n.nft.drop(); err != nil {
		t.Fatal(err)
	}
	if err := n.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	host.mustAsk(t, "tcp", "127.0.0.1:8021", "p")

	// Also without Check, the next pod with ports notices.
	if err := n.nft.drop(); err != nil {
		t.Fatal(err)
	}
	setup(t, n, "q", tcp(8022, 80))
	host.mustAsk(t, "tcp", "127.0.0.1:8021", "p")
}

// Whatever point a process is killed at, a later one can set up the same pod,
// or reclaim what it left.
func TestLeftoversOfAKilledSetup(t *testing.T) {
	cfg := testConfig(t)
	n := open(t, cfg)
	p := setup(t, n, "p", tcp(8030, 80))
	p.serve(t, "p", "tcp", ":80")
	l := n.List()[0]
	link, err := netlink.LinkByName(l.Link)
	if err != nil {
		t.Fatal(err)
	}
	for name, leave := range map[string]func() error{
		"all was made but not marked": func() error { return netlink.LinkSetAlias(link, "") },
		"the pod's side was not set up yet": func() error {
			return errors.Join(netlink.LinkSetAlias(link, ""), p.try(func() error {
				h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
				if err != nil {
					return err
				}
				defer h.Close()
				eth, err := h.LinkByName(podLink)
				if err != nil {
					return err
				}
				return h.LinkSetDown(eth)
			}))
		},
		"the rules were not made yet":        n.nft.drop,
		"the link was not on the bridge yet": func() error { return netlink.LinkSetNoMaster(link) },
		"no link was made yet": func() error {
			h, err := n.handle()
			if err != nil {
				return err
			}
			defer n.putHandle(h)
			return delLink(h, l.Link)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := leave(); err != nil {
				t.Fatal(err)
			}
			again, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			res, err := again.Setup(t.Context(), Request{ID: "p", NetNS: p.path, Ports: []PortMapping{tcp(8030, 80)}})
			if err != nil || !slices.Equal(res.IPs, p.ips) {
				t.Fatalf("got %v, %v; want %v", res.IPs, err, p.ips)
			}
			host.mustAsk(t, "tcp", "127.0.0.1:8030", "p")
			if link, err = netlink.LinkByName(l.Link); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("reclaimed", func(t *testing.T) {
		again, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		count, err := again.Reclaim(t.Context(), func(id string) bool { return id != "p" })
		if err != nil || count != 1 {
			t.Fatalf("reclaimed %d, %v; want 1", count, err)
		}
		again.Flush()
		if links, _ := inventory(t); slices.Contains(links, l.Link) {
			t.Errorf("link %s is still there", l.Link)
		}
		if _, _, err := host.ask("tcp", "127.0.0.1:8030"); err == nil || ports(t, again) != 0 {
			t.Errorf("the host port still leads somewhere: %d ports", ports(t, again))
		}
	})
}

func TestLeftoverOfAKilledTeardown(t *testing.T) {
	cfg := testConfig(t)
	n := open(t, cfg)
	setup(t, n, "p", tcp(8031, 80))
	l := n.List()[0]
	if err := n.leases.markGone("p"); err != nil { // and killed before the rest
		t.Fatal(err)
	}
	again, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	again.Flush()
	links, _ := inventory(t)
	if slices.Contains(links, l.Link) || len(again.pods) != 0 || ports(t, again) != 0 {
		t.Errorf("links %v, %d pods, %d ports left", links, len(again.pods), ports(t, again))
	}
}

func TestTornStateCostsOnlyItself(t *testing.T) {
	cfg := testConfig(t)
	n := open(t, cfg)
	p, q := setup(t, n, "p"), setup(t, n, "q")
	if err := os.WriteFile(n.leases.path("p", leaseSuffix), []byte(`{"id":"p","ips":["10.`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.leases.path("x", leaseSuffix)+".new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if ls := again.List(); len(ls) != 1 || ls[0].ID != "q" || !slices.Equal(ls[0].IPs, q.ips) {
		t.Errorf("leases %+v, want that of q", ls)
	}
	if res, err := again.Setup(t.Context(), Request{ID: "p", NetNS: p.path}); err != nil || slices.Equal(res.IPs, q.ips) {
		t.Errorf("got %v, %v", res.IPs, err)
	}
	if files, _ := os.ReadDir(again.leases.leaseDir()); len(files) != 2 {
		t.Errorf("%d files, want 2", len(files))
	}
}

func TestLeasesOfAnEarlierBootAreDropped(t *testing.T) {
	cfg := testConfig(t)
	n := open(t, cfg)
	p := setup(t, n, "p")
	n.leases.boot = "another"
	if err := n.leases.replace(n.List()[0]); err != nil {
		t.Fatal(err)
	}
	again, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if ls := again.List(); len(ls) != 0 {
		t.Errorf("leases %+v, want none", ls)
	}
	if q := setup(t, again, "q"); slices.Equal(q.ips, p.ips) {
		t.Errorf("%v was used again at once", q.ips)
	}
}
