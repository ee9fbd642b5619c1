package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/berth-run/berth/internal/cri/network"
	"github.com/berth-run/berth/internal/testutil/leak"
	"github.com/berth-run/berth/internal/testutil/namespaces"
)

// node is a machine with both networks.
type node struct {
	*site
	by    By
	fixed bool
}

func newNode(t testing.TB, by By) *node { return &node{site: newSite(t), by: by} }

// start makes a Switch, as a restarted berth does.
func (n *node) start() *Switch {
	n.t.Helper()
	s, err := NewSwitch(SwitchConfig{
		By: n.by, Fixed: n.fixed, CNI: n.config(),
		Bridge: network.Config{
			StateDir: n.state + "-bridge", Bridge: "bswitch", CIDR: netip.MustParsePrefix("10.82.0.0/24"), Log: n.config().Log,
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			n.t.Error(err)
		}
	})
	return s
}

// restart closes a Switch, as the end of a berth does, and makes another one.
func (n *node) restart(s *Switch) *Switch {
	n.t.Helper()
	if err := s.Close(); err != nil {
		n.t.Fatal(err)
	}
	return n.start()
}

func in(t testing.TB, ips []netip.Addr, cidr string) {
	t.Helper()
	if len(ips) != 1 || !netip.MustParsePrefix(cidr).Contains(ips[0]) {
		t.Errorf("addresses %v, want one of %s", ips, cidr)
	}
}

// Configurations come and go while sandboxes live. Each sandbox is torn down by
// who connected it, after restarts too.
func TestEachIsTornDownByWhoConnectedIt(t *testing.T) {
	n := newNode(t, Auto)
	s := n.start()
	spaces := []string{namespaces.NewNet(t), namespaces.NewNet(t), namespaces.NewNet(t)}
	in(t, mustSetup(t, s, request("a", spaces[0])), "10.82.0.0/24")
	n.write("10-net.conflist", list("net", n.bridge("cni1", "10.81.0.0/24")))
	cni := mustSetup(t, s, request("b", spaces[1]))
	in(t, cni, "10.81.0.0/24")
	s = n.restart(s)
	n.empty()
	bridged := mustSetup(t, s, request("c", spaces[2]))
	in(t, bridged, "10.82.0.0/24")
	reach(t, spaces[1], cni[0])
	reach(t, spaces[2], bridged[0])

	// Nobody names b and c any more.
	n.write("10-net.conflist", `{`)
	s = n.restart(s)
	if done, err := s.Reclaim(t.Context(), func(id string) bool { return id == "a" }); err != nil || done != 2 {
		t.Errorf("%d were reclaimed, %v", done, err)
	}
	mustTeardown(t, s, "a")
	if left := n.addressesTaken("net"); len(left) > 0 || n.recorded() > 0 {
		t.Errorf("left are %v, and %d files", left, n.recorded())
	}
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{n.state, n.state + "-bridge"} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	if _, err := netlink.LinkByName("bswitch"); err == nil {
		t.Error("the bridge is left")
	}
}

func TestCleanupTearsDownAll(t *testing.T) {
	n := newNode(t, Auto)
	n.write("10-net.conflist", list("net", n.bridge("cni1", "10.81.0.0/24")))
	warm(t, n.site)
	s := n.start()
	mustSetup(t, s, request("b", namespaces.NewNet(t)))
	n.empty()
	mustSetup(t, s, request("a", namespaces.NewNet(t)))
	n.by = Bridge // whatever is to connect sandboxes now
	s = n.restart(s)
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := n.addressesTaken("net"); len(left) > 0 {
		t.Errorf("addresses are left: %v", left)
	}
}

// What the network says of itself follows the folder, and so do set-ups.
func TestStatusFollowsTheFolder(t *testing.T) {
	for name, tt := range map[string]struct {
		by    By
		write func(*node)
		err   string // part of why nothing can be connected; "": it can
		load  string // part of how the last look at the folder went; "-": nobody looks
		who   string
	}{
		"no configuration, the bridge":          {Auto, func(*node) {}, "", "there is no CNI configuration in", "bridge bswitch 10.82.0.0/24"},
		"no configuration, and none else":       {CNI, func(*node) {}, "there is no CNI configuration in", "there is no CNI configuration in", "cni"},
		"a configuration that nobody asked for": {Bridge, func(n *node) { n.write("10-net.conflist", "{") }, "", "-", "bridge bswitch 10.82.0.0/24"},
		"a broken configuration":                {Auto, func(n *node) { n.write("10-net.conflist", "{") }, "10-net.conflist", "10-net.conflist", "cni"},
		"a good one":                            {Auto, func(n *node) { n.write("10-net.conflist", list("net", n.bridge("cni1", "10.81.0.0/24"))) }, "", "OK", "cni"},
		"a plugin is missing":                   {Auto, func(n *node) { n.write("10-net.conflist", list("net", `{"type": "nowhere"}`)) }, `the CNI plugin "nowhere" in`, "OK", "cni"},
		"a plugin for addresses is missing": {CNI, func(n *node) {
			n.write("10-net.conflist", list("net", `{"type": "bridge", "ipam": {"type": "nowhere"}}`))
		}, `"nowhere"`, "OK", "cni"},
		"a plugin says that it is not ready": {Auto, func(n *node) {
			n.plugin("shy", `[ $CNI_COMMAND = STATUS ] && { echo '{"code": 50, "msg": "not yet"}'; exit 1; }`)
			n.write("10-net.conflist", `{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "shy"}]}`)
		}, "not yet", "OK", "cni"},
		"a plugin says that it is ready": {Auto, func(n *node) {
			n.plugin("brave", "")
			n.write("10-net.conflist", `{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "brave"}]}`)
		}, "", "OK", "cni"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, tt.by)
			s := n.start()
			tt.write(n)
			st := s.Status(t.Context())
			if (st.Err == nil) != (tt.err == "") || st.Err != nil && !strings.Contains(st.Err.Error(), tt.err) {
				t.Errorf("status %v, want %q", st.Err, tt.err)
			}
			load, looked := st.Info["lastCNILoadStatus"]
			if looked != (tt.load != "-") || looked && !strings.Contains(load, tt.load) {
				t.Errorf("load status %q, want %q", load, tt.load)
			}
			if st.Info["network"] != tt.who {
				t.Errorf("it is %q, want %q", st.Info["network"], tt.who)
			}
			if looked {
				config := decode(t, st.Info["cniconfig"])
				if config["PluginConfDir"] != n.conf || (config["Networks"] != nil) != (load == "OK") {
					t.Errorf("configuration %v", config)
				}
			}
			// What says that it is ready is, and the other way round.
			_, err := s.Setup(t.Context(), request("one", namespaces.NewNet(t)))
			if (err == nil) != (st.Err == nil) && name != "a plugin says that it is not ready" {
				t.Errorf("a set-up gives %v", err)
			}
			mustTeardown(t, s, "one")
			if err := s.Cleanup(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A cluster tells the ranges of pods once, at any time.
func TestTheClusterChoosesRanges(t *testing.T) {
	n := newNode(t, Auto)
	s := n.start()
	ranges, err := network.ParseRanges("10.83.1.0/24")
	if err != nil {
		t.Fatal(err)
	}
	mustSetup(t, s, request("old", namespaces.NewNet(t)))
	if err := s.UseRanges(t.Context(), ranges); err != nil {
		t.Fatal(err)
	}
	in(t, mustSetup(t, s, request("older", namespaces.NewNet(t))), "10.82.0.0/24") // else the first would be cut off
	mustTeardown(t, s, "older")
	s = n.restart(s)
	mustTeardown(t, s, "old")
	ns := namespaces.NewNet(t)
	ips := mustSetup(t, s, request("new", ns))
	in(t, ips, "10.83.1.0/24")
	reach(t, ns, ips[0])
	if st := s.Status(t.Context()); st.Info["network"] != "bridge bswitch 10.83.1.0/24" {
		t.Errorf("status %v", st)
	}
	if err := s.UseRanges(t.Context(), ranges); err != nil { // again, as a kubelet that is restarted
		t.Fatal(err)
	}
	reach(t, ns, ips[0])
	mustTeardown(t, s, "new")
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRangesThatAreNotUsed(t *testing.T) {
	for name, tt := range map[string]struct {
		fixed  bool
		ranges string
		want   string // of the next sandbox
		err    string
	}{
		"others were asked for":       {true, "10.83.1.0/24", "10.82.0.0/24", ""},
		"IPv6 alone":                  {false, "fd00:83::/64", "10.82.0.0/24", "needs an IPv4 range"},
		"reserved":                    {false, "127.0.0.0/8", "10.82.0.0/24", "reserved"},
		"the second family is second": {false, "fd00:83::/64,10.83.1.0/24", "10.83.1.0/24", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Auto)
			n.fixed = tt.fixed
			s := n.start()
			ranges, err := network.ParseRanges(tt.ranges)
			if err != nil {
				t.Fatal(err)
			}
			err = s.UseRanges(t.Context(), ranges)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			ips := mustSetup(t, s, request("one", namespaces.NewNet(t)))
			in(t, ips[:1], tt.want)
			if err := s.Cleanup(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Sandboxes that come and go leave nothing, whoever connects them.
func TestSandboxesLeaveNothing(t *testing.T) {
	n := newNode(t, Auto)
	s := n.start()
	conf := list("net", n.bridge("cni1", "10.81.0.0/24"), `{"type": "portmap", "capabilities": {"portMappings": true}}`)
	cycle := func() {
		n.empty()
		r := request("a", namespaces.NewNet(t))
		r.Ports = []network.PortMapping{{HostPort: 18080, ContainerPort: 80, Proto: network.TCP}}
		mustSetup(t, s, r)
		n.write("10-net.conflist", conf)
		r.ID, r.NetNS = "b", namespaces.NewNet(t)
		r.Ports[0].HostPort++
		mustSetup(t, s, r)
		mustTeardown(t, s, "a")
		mustTeardown(t, s, "b")
		namespaces.EndNet(r.NetNS)
	}
	cycle()
	scope := leak.Scope{Dirs: []string{n.state, n.state + "-bridge", n.ipam}, Procs: []int{0}, Without: []string{"mount of nsfs"}}
	before := leak.Take(t, scope)
	for range 3 {
		cycle()
	}
	before.NoMore(t, scope)
	if err := s.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
}

// Sandboxes come and go at the same time, while the configuration and the ranges
// change. Each is whole, and none is left.
func TestManyAtOnce(t *testing.T) {
	n := newNode(t, Auto)
	s := n.start()
	conf := list("net", n.bridge("cni1", "10.81.0.0/24"))
	var spaces [12][3]string
	for i := range spaces {
		for round := range spaces[i] {
			spaces[i][round] = namespaces.NewNet(t)
		}
	}
	var sandboxes, changes sync.WaitGroup
	for i := range spaces {
		sandboxes.Go(func() {
			for round, ns := range spaces[i] {
				id := fmt.Sprintf("s%d-%d", i, round)
				res, err := s.Setup(t.Context(), request(id, ns))
				if err == nil && len(res.IPs) != 1 {
					t.Errorf("%s has %v", id, res.IPs)
				}
				if err := errors.Join(err, s.Teardown(t.Context(), id)); err != nil {
					t.Error(err)
				}
				s.Status(t.Context())
			}
		})
	}
	done := make(chan struct{})
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			n.write("new", conf)
			if err := os.Rename(n.conf+"/new", n.conf+"/10-net.conflist"); err != nil {
				t.Error(err)
			}
			cidr := netip.MustParsePrefix(fmt.Sprintf("10.83.%d.0/24", i%200))
			if err := s.UseRanges(t.Context(), []netip.Prefix{cidr}); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond)
			if err := os.Remove(n.conf + "/10-net.conflist"); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	sandboxes.Wait()
	close(done)
	changes.Wait()
	if left := n.addressesTaken("net"); len(left) > 0 || n.recorded() > 0 {
		t.Errorf("left are %v, and %d files", left, n.recorded())
	}
	if err := s.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
}
