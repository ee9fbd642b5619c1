package network

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/testutil/namespaces"
)

// The main thread must not wander into other namespaces: it cannot end with its
// goroutine, and it is the one that /proc shows for the process. A lock taken
// while packages are initialized keeps it with the main goroutine.
var _ = func() bool { runtime.LockOSThread(); return true }()

// The network namespace of the tests plays the host.
func TestMain(m *testing.M) { os.Exit(namespaces.Main(m, nil)) }

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces, links and nftables")
	}
}

// space is a network namespace pinned to a file; the host itself has no path.
type space struct{ path string }

var host = space{}

func newSpace(t testing.TB) space {
	t.Helper()
	return space{namespaces.NewNet(t)}
}

// remove may be called more than once.
func (s space) remove() { namespaces.EndNet(s.path) }

// do runs f in the namespace. Sockets that f opens stay there.
func (s space) do(t testing.TB, f func() error) {
	t.Helper()
	if err := s.try(f); err != nil {
		t.Fatal(err)
	}
}

func (s space) try(f func() error) error {
	if s == host {
		return f()
	}
	return namespaces.WithinNet(s.path, f)
}

// serve answers on a TCP or UDP address with its name and the peer's address.
func (s space) serve(t testing.TB, name, network, addr string) {
	t.Helper()
	if strings.HasPrefix(network, "udp") {
		var pc net.PacketConn
		s.do(t, func() (err error) { pc, err = net.ListenPacket(network, addr); return err })
		t.Cleanup(func() { pc.Close() })
		go func() {
			b := make([]byte, 100)
			for {
				_, peer, err := pc.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = pc.WriteTo([]byte(name+" "+hostOf(peer)), peer)
			}
		}()
		return
	}
	var l net.Listener
	s.do(t, func() (err error) { l, err = net.Listen(network, addr); return err })
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name+" "+hostOf(c.RemoteAddr()))
			c.Close()
		}
	}()
}

func hostOf(a net.Addr) string { return netip.MustParseAddrPort(a.String()).Addr().Unmap().String() }

// ask connects from the namespace and returns who answered and the address it
// saw.
func (s space) ask(network, addr string) (name, peer string, err error) {
	return s.askFrom(network, "", addr)
}

func (s space) askFrom(network, local, addr string) (name, peer string, err error) {
	var c net.Conn
	d := net.Dialer{Timeout: 2 * time.Second}
	if local != "" {
		if strings.HasPrefix(network, "udp") {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(local))
		} else {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(local))
		}
	}
	if err := s.try(func() (err error) { c, err = d.Dial(network, addr); return err }); err != nil {
		return "", "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if strings.HasPrefix(network, "udp") {
		if _, err := io.WriteString(c, "?"); err != nil {
			return "", "", err
		}
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	if err != nil {
		return "", "", err
	}
	name, peer, _ = strings.Cut(string(b[:n]), " ")
	return name, peer, nil
}

// mustAsk expects an answer of want.
func (s space) mustAsk(t testing.TB, network, addr, want string) (peer string) {
	t.Helper()
	name, peer, err := s.ask(network, addr)
	if err != nil || name != want {
		t.Errorf("%s %s: answer of %q, %v; want %q", network, addr, name, err, want)
	}
	return peer
}

// counter gives each test its own bridge name and range.
var counter int

func testConfig(t testing.TB) Config {
	t.Helper()
	needRoot(t)
	counter++
	return Config{
		StateDir: filepath.Join(t.TempDir(), "network"),
		Bridge:   fmt.Sprintf("bt%d", counter),
		CIDR:     netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 20+counter%200)),
		Log:      slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// open makes a Network that is cleaned up at the end of the test.
func open(t testing.TB, cfg Config) *Network {
	t.Helper()
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Cleanup(t.Context()); err != nil && !n.closedForTest() {
			t.Error(err)
		}
	})
	return n
}

func (n *Network) closedForTest() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

type testPod struct {
	space
	id  string
	ips []netip.Addr
}

func (p testPod) ip() string { return p.ips[0].String() }

func setup(t testing.TB, n *Network, id string, ports ...PortMapping) testPod {
	t.Helper()
	p := testPod{space: newSpace(t), id: id}
	res, err := n.Setup(t.Context(), Request{ID: id, NetNS: p.path, Ports: ports})
	if err != nil {
		t.Fatal(err)
	}
	p.ips = res.IPs
	return p
}

func tcp(hostPort, port uint16) PortMapping {
	return PortMapping{HostPort: hostPort, ContainerPort: port, Proto: TCP}
}

func udp(hostPort, port uint16) PortMapping {
	return PortMapping{HostPort: hostPort, ContainerPort: port, Proto: UDP}
}

// newOutside makes another machine, on a cable with the host.
func newOutside(t testing.TB) (s space, hostIP, hostIP6, ownIP, ownIP6 string) {
	t.Helper()
	s = newSpace(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("cable%d", counter)
	third := counter % 250
	ends := []struct {
		in     space
		link   string
		v4, v6 string
	}{
		{host, attrs.Name, fmt.Sprintf("198.18.%d.1", third), fmt.Sprintf("2001:db8:%x::1", third)},
		{s, "up", fmt.Sprintf("198.18.%d.2", third), fmt.Sprintf("2001:db8:%x::2", third)},
	}
	ns, err := netns.GetFromPath(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "up", PeerNamespace: netlink.NsFd(ns)}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	for _, e := range ends {
		e.in.do(t, func() error {
			h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer h.Close()
			for _, name := range []string{"lo", e.link} {
				l, err := h.LinkByName(name)
				if err != nil {
					return err
				}
				if err := h.LinkSetUp(l); err != nil {
					return err
				}
				if name == "lo" {
					continue
				}
				for _, cidr := range []string{e.v4 + "/24", e.v6 + "/64"} {
					if err := h.AddrAdd(l, newAddr(netip.MustParsePrefix(cidr))); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return s, ends[0].v4, ends[0].v6, ends[1].v4, ends[1].v6
}
