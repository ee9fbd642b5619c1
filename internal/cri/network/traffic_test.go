package network

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/cri/network/ipam"
)

func TestPodsReachEachOtherAndTheHost(t *testing.T) {
	n := open(t, testConfig(t))
	a, b := setup(t, n, "a"), setup(t, n, "b")
	a.serve(t, "a", "tcp", ":8080")
	if peer := b.mustAsk(t, "tcp", a.ip()+":8080", "a"); peer != b.ip() {
		t.Errorf("a saw b as %s, want its own address %s", peer, b.ip())
	}
	host.mustAsk(t, "tcp", a.ip()+":8080", "a")
	a.mustAsk(t, "tcp", "127.0.0.1:8080", "a")
	host.serve(t, "host", "tcp", ipam.Gateway(n.cfg.CIDR).String()+":9090")
	if peer := a.mustAsk(t, "tcp", ipam.Gateway(n.cfg.CIDR).String()+":9090", "host"); peer != a.ip() {
		t.Errorf("the host saw the pod as %s, want %s", peer, a.ip())
	}
}

func TestWhatLeavesTheRangeIsMasqueraded(t *testing.T) {
	n := open(t, testConfig(t))
	outside, hostIP, _, ownIP, _ := newOutside(t)
	p := setup(t, n, "p")
	outside.serve(t, "world", "tcp", ":80")
	outside.serve(t, "world", "udp", ":53")
	for _, network := range []string{"tcp", "udp"} {
		port := map[string]string{"tcp": ":80", "udp": ":53"}[network]
		if peer := p.mustAsk(t, network, ownIP+port, "world"); peer != hostIP {
			t.Errorf("%s: the world saw %s, want the host's %s", network, peer, hostIP)
		}
	}
}

// A host port works from everywhere: from the host over loopback and its other
// addresses, from other machines, from neighbours, and from the pod itself.
func TestHostPorts(t *testing.T) {
	needRoot(t)
	for name, value := range map[string]string{"bridged packets pass the rules": "1", "bridged packets pass by the rules": "0"} {
		t.Run(name, func(t *testing.T) {
			for _, sysctl := range []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"} {
				before, err := readSysctl(sysctl)
				if err != nil && value == "1" {
					t.Skipf("needs the kernel's br_netfilter: %v", err)
				}
				if err != nil {
					break // without it they pass by
				}
				if _, err := setSysctl(sysctl, value); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _, _ = setSysctl(sysctl, before) })
			}
			testHostPorts(t)
		})
	}
}

func testHostPorts(t *testing.T) {
	cfg := testConfig(t)
	cfg.CIDR6 = netip.MustParsePrefix("fd00:be::/64")
	n := open(t, cfg)
	outside, hostIP, hostIP6, ownIP, _ := newOutside(t)
	p := setup(t, n, "p", tcp(8000, 80), udp(5300, 53))
	q := setup(t, n, "q")
	for _, addr := range []string{"0.0.0.0", "[::]"} {
		family := map[string]string{"0.0.0.0": "4", "[::]": "6"}[addr]
		p.serve(t, "p", "tcp"+family, addr+":80")
		p.serve(t, "p", "udp"+family, addr+":53")
	}
	gateway := ipam.Gateway(cfg.CIDR).String()
	for _, c := range []struct {
		from     space
		fromName string
		to       string
	}{
		{host, "host", "127.0.0.1"},
		{host, "host", "127.3.2.1"},
		{host, "host", hostIP},
		{host, "host", gateway},
		{host, "host", hostIP6},
		{outside, "outside", hostIP},
		{outside, "outside", hostIP6},
		{q.space, "neighbour", hostIP},
		{q.space, "neighbour", gateway},
		{q.space, "neighbour", hostIP6},
		{p.space, "pod itself", hostIP},
		{p.space, "pod itself", gateway},
		{p.space, "pod itself", hostIP6},
	} {
		t.Run("from "+c.fromName+" to "+c.to, func(t *testing.T) {
			c.from.mustAsk(t, "tcp", net.JoinHostPort(c.to, "8000"), "p")
			c.from.mustAsk(t, "udp", net.JoinHostPort(c.to, "5300"), "p")
		})
	}
	t.Run("the pod sees who calls from outside", func(t *testing.T) {
		if peer := outside.mustAsk(t, "tcp", hostIP+":8000", "p"); peer != ownIP {
			t.Errorf("saw %s, want %s", peer, ownIP)
		}
	})
	t.Run("and nothing answers after teardown", func(t *testing.T) {
		if err := n.Teardown(t.Context(), "p"); err != nil {
			t.Fatal(err)
		}
		n.Flush()
		for _, to := range []string{"127.0.0.1", hostIP} {
			if name, _, err := host.ask("tcp", to+":8000"); err == nil {
				t.Errorf("%q still answers on %s", name, to)
			}
		}
	})
}

func TestHostPortOfOneAddressOnly(t *testing.T) {
	n := open(t, testConfig(t))
	outside, hostIP, _, _, _ := newOutside(t)
	onLoopback, onCable := tcp(8001, 80), tcp(8001, 80)
	onLoopback.HostIP, onCable.HostIP = netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr(hostIP)
	a, b := setup(t, n, "a", onLoopback), setup(t, n, "b", onCable)
	a.serve(t, "a", "tcp", ":80")
	b.serve(t, "b", "tcp", ":80")
	host.mustAsk(t, "tcp", "127.0.0.1:8001", "a")
	host.mustAsk(t, "tcp", hostIP+":8001", "b")
	outside.mustAsk(t, "tcp", hostIP+":8001", "b")
	if name, _, err := host.ask("tcp", ipam.Gateway(n.cfg.CIDR).String()+":8001"); err == nil {
		t.Errorf("%q answers on an address it was not given", name)
	}
}

// What listens on the host's loopback only is none of the pods' business, also
// when they route packets for it to the host on purpose.
func TestPodCannotReachTheHostsLoopback(t *testing.T) {
	n := open(t, testConfig(t))
	p := setup(t, n, "p")
	host.serve(t, "secret", "tcp", "127.0.0.1:7070")
	p.do(t, func() error {
		if _, err := setSysctl("net/ipv4/conf/eth0/route_localnet", "1"); err != nil {
			return err
		}
		return routeLoopbackTo(ipam.Gateway(n.cfg.CIDR))
	})
	if name, _, err := p.askFrom("tcp", p.ip()+":0", "127.0.0.1:7070"); err == nil {
		t.Errorf("the pod reached %q on the host's loopback", name)
	}
	if err := n.nft.drop(); err != nil { // the test itself must be able to fail
		t.Fatal(err)
	}
	if _, _, err := p.askFrom("tcp", p.ip()+":0", "127.0.0.1:7070"); err != nil {
		t.Errorf("without the guard the pod should reach it, or the test proves nothing: %v", err)
	}
}

// A client that goes on sending from the same port must reach the pod that has
// the host port now, and not the one that had it before.
func TestUDPClientFollowsTheHostPort(t *testing.T) {
	n := open(t, testConfig(t))
	outside, hostIP, _, ownIP, _ := newOutside(t)
	ask := func(want string) {
		t.Helper()
		name, _, err := outside.askFrom("udp", ownIP+":40000", hostIP+":5301")
		if name != want {
			t.Errorf("answer of %q, %v; want %q", name, err, want)
		}
	}
	ask("") // nobody is there; the kernel remembers all the same
	for _, id := range []string{"first", "second"} {
		p := setup(t, n, id, udp(5301, 53))
		p.serve(t, id, "udp", ":53")
		n.Flush()
		ask(id)
		if err := n.Teardown(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

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
