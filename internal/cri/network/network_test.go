package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/cri/network/ipam"
)

func routeLoopbackTo(gw netip.Addr) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	eth, err := h.LinkByName(podLink)
	if err != nil {
		return err
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := h.AddrDel(lo, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("127.0.0.1/8"))}); err != nil {
		return err
	}
	return h.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("127.0.0.0/8")), Gw: gw.AsSlice()})
}

// inventory lists what the kernel has of our making.
func inventory(t testing.TB) (links, tables []string) {
	t.Helper()
	ls, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range ls {
		if name := l.Attrs().Name; l.Type() == "veth" && strings.HasPrefix(name, linkPrefix) || l.Type() == "bridge" {
			links = append(links, name)
		}
	}
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	ts, err := c.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range ts {
		tables = append(tables, table.Name)
	}
	return links, tables
}

func ports(t testing.TB, n *Network) int {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, cidr := range n.cidrs {
		for _, exact := range []bool{false, true} {
			es, err := c.GetSetElements(n.nft.hostPortMap(cidr.Addr().Is4(), exact))
			if err != nil {
				t.Fatal(err)
			}
			count += len(es)
		}
	}
	return count
}

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

func TestPortTaken(t *testing.T) {
	n := open(t, testConfig(t))
	_, hostIP, _, _, _ := newOutside(t)
	setup(t, n, "owner", tcp(8040, 80))
	l, err := net.Listen("tcp", "0.0.0.0:8041")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", hostIP+":8042")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	self := fmt.Sprintf("process %d (", os.Getpid())
	one := func(ip string, m PortMapping) PortMapping { m.HostIP = netip.MustParseAddr(ip); return m }
	for name, c := range map[string]struct {
		port PortMapping
		want string // empty: no error
	}{
		"by another pod":                       {tcp(8040, 81), "host port 8040/tcp is taken by pod owner"},
		"by another pod, on one address":       {one("127.0.0.1", tcp(8040, 81)), "host port 127.0.0.1:8040/tcp is taken by pod owner"},
		"not for another protocol":             {udp(8040, 81), ""},
		"by a process":                         {tcp(8041, 80), "host port 8041/tcp is taken by " + self},
		"by a process on one address":          {udp(8042, 80), "host port 8042/udp is taken by " + self},
		"not on an address it does not listen": {one("127.0.0.1", udp(8042, 80)), ""},
		"nor is an address we do not have":     {one("192.0.2.77", tcp(8043, 80)), "192.0.2.77 is not an address of this machine"},
		"SCTP, which has no sockets here":      {PortMapping{HostPort: 8044, ContainerPort: 80, Proto: SCTP}, ""},
		"an IPv6 address for pods without":     {one("::1", tcp(8045, 80)), "pods have no IPv6 address here"},
		"no port":                              {tcp(0, 80), "0 is not a port"},
		"no protocol":                          {PortMapping{HostPort: 1, ContainerPort: 1, Proto: "tcp"}, `protocol "tcp" is not TCP, UDP or SCTP`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := n.Setup(t.Context(), Request{ID: name, NetNS: newSpace(t).path, Ports: []PortMapping{c.port}})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if err := n.Teardown(t.Context(), name); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := n.Setup(t.Context(), Request{ID: "twice", NetNS: newSpace(t).path, Ports: []PortMapping{tcp(8046, 80), one("0.0.0.0", tcp(8046, 81))}}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("error %v, want one about the same port twice", err)
	}
	// Failed attempts must hold nothing back.
	n.Flush()
	if ls := n.List(); len(ls) != 1 || len(n.taken) != 1 {
		t.Errorf("leases %+v, %d addresses taken; want those of owner only", ls, len(n.taken))
	}
}

// 200 pods come at once, go at once, and leave nothing.
func TestManyPodsLeaveNothing(t *testing.T) {
	const count = 200
	n := open(t, testConfig(t))
	spaces := make([]space, count)
	for i := range spaces {
		spaces[i] = newSpace(t)
	}
	each := func(f func(i int) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range count {
			wg.Go(func() {
				if err := f(i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	ips := make([]netip.Addr, count)
	request := func(i int) Request {
		return Request{ID: fmt.Sprint("pod", i), NetNS: spaces[i].path, Ports: []PortMapping{tcp(uint16(20000+i), 80), udp(uint16(20000+i), 53)}}
	}
	each(func(i int) error {
		res, err := n.Setup(t.Context(), request(i))
		if err == nil {
			ips[i] = res.IPs[0]
		}
		return err
	})
	if distinct := slices.Compact(slices.SortedFunc(slices.Values(ips), netip.Addr.Compare)); len(distinct) != count {
		t.Errorf("%d distinct addresses for %d pods", len(distinct), count)
	}
	if got := ports(t, n); got != 2*count {
		t.Errorf("%d host ports, want %d", got, 2*count)
	}
	spaces[7].serve(t, "seven", "tcp", ":80")
	host.mustAsk(t, "tcp", "127.0.0.1:20007", "seven")
	spaces[150].mustAsk(t, "tcp", ips[7].String()+":80", "seven")

	each(func(i int) error {
		if i%2 == 0 {
			spaces[i].remove() // its namespace may go first, and its link with it
		}
		return n.Teardown(t.Context(), fmt.Sprint("pod", i))
	})
	// Some come back before the old links are gone.
	each(func(i int) error {
		if i%20 != 1 {
			return nil
		}
		_, err := n.Setup(t.Context(), request(i))
		return errors.Join(err, n.Teardown(t.Context(), fmt.Sprint("pod", i)))
	})
	n.Flush()
	links, _ := inventory(t)
	files, err := os.ReadDir(n.leases.leaseDir())
	if got := ports(t, n); err != nil || got != 0 || len(links) != 1 || len(files) != 0 || len(n.List()) != 0 || len(n.taken) != 0 {
		t.Errorf("left: %d ports, links %v, %d files, %d leases, %d addresses, %v", got, links, len(files), len(n.List()), len(n.taken), err)
	}
	if err := n.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if links, tables := inventory(t); len(links)+len(tables) != 0 {
		t.Errorf("left after cleanup: links %v, tables %v", links, tables)
	}
	if _, err := os.Stat(n.cfg.StateDir); !os.IsNotExist(err) {
		t.Errorf("state folder is still there: %v", err)
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

func TestConfigProblemsAreReportedAtOnce(t *testing.T) {
	_, err := New(Config{Bridge: "much too long a name", CIDR: netip.MustParsePrefix("10.0.0.1/8"), MTU: 3})
	for _, want := range []string{"StateDir", "much too long", "unlike 10.0.0.0/8; choose", "MTU"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not speak of %q", err, want)
		}
	}
}

func TestNothingIsLeakedByManySetups(t *testing.T) {
	n := open(t, testConfig(t))
	s := newSpace(t)
	round := func() (files, goroutines int) {
		t.Helper()
		for range 20 {
			if _, err := n.Setup(t.Context(), Request{ID: "p", NetNS: s.path, Ports: []PortMapping{tcp(8090, 80), udp(8090, 80)}}); err != nil {
				t.Fatal(err)
			}
			if err := n.Teardown(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
		}
		n.Flush()
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds), runtime.NumGoroutine()
	}
	const some = 10 // idle sockets are kept, a few
	files, goroutines := round()
	if f, g := round(); f > files+some || g > goroutines+some {
		t.Errorf("open files %d → %d, goroutines %d → %d", files, f, goroutines, g)
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

func BenchmarkSetup(b *testing.B) {
	for name, ports := range map[string][]PortMapping{"plain": nil, "hostport": {tcp(8060, 80)}, "udp": {udp(8060, 80)}} {
		b.Run(name, func(b *testing.B) {
			n := open(b, testConfig(b))
			if err := n.Up(b.Context()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				s := newSpace(b)
				b.StartTimer()
				if _, err := n.Setup(b.Context(), Request{ID: s.path, NetNS: s.path, Ports: ports}); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := n.Teardown(b.Context(), s.path); err != nil {
					b.Fatal(err)
				}
				n.Flush()
				b.StartTimer()
			}
		})
	}
}

// A hundred pods with a host port each, at once; the time is that of all.
func BenchmarkHundredAtOnce(b *testing.B) {
	const count = 100
	n := open(b, testConfig(b))
	if err := n.Up(b.Context()); err != nil {
		b.Fatal(err)
	}
	all := func(f func(i int) error) {
		var wg sync.WaitGroup
		for i := range count {
			wg.Go(func() {
				if err := f(i); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	var up, down, flushed time.Duration
	rounds := 0
	for b.Loop() {
		rounds++
		b.StopTimer()
		spaces := make([]space, count)
		for i := range spaces {
			spaces[i] = newSpace(b)
		}
		b.StartTimer()
		start := time.Now()
		all(func(i int) error {
			_, err := n.Setup(b.Context(), Request{ID: spaces[i].path, NetNS: spaces[i].path, Ports: []PortMapping{tcp(uint16(10000+i), 80)}})
			return err
		})
		up += time.Since(start)
		start = time.Now()
		all(func(i int) error { return n.Teardown(b.Context(), spaces[i].path) })
		down += time.Since(start)
		n.Flush()
		flushed += time.Since(start)
	}
	b.ReportMetric(float64(up.Milliseconds())/float64(rounds), "ms-setup")
	b.ReportMetric(float64(down.Milliseconds())/float64(rounds), "ms-teardown")
	b.ReportMetric(float64(flushed.Milliseconds())/float64(rounds), "ms-until-gone")
}
