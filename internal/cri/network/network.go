package network

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the network is closed")

// Network is the network of the pods of one node. It is safe for concurrent use.
type Network struct {
	cfg    Config
	log    *slog.Logger
	cidrs  []netip.Prefix // IPv4 first
	mtu    int            // bytes
	group  uint32         // links to be deleted are put in here
	nft    *nft
	leases *leaseStore
	host   chan *netlink.Handle // idle sockets

	up     chan struct{} // one token: only its holder changes the bridge
	rules  chan struct{} // one token: only its holder changes the table, and Lease.Ports of a known pod
	bridge atomic.Int64  // index of the bridge; 0: not known to be up

	mu      sync.Mutex // guards what follows; never held across I/O
	pods    map[string]*pod
	taken   map[netip.Addr]string // id of the pod that has it
	last    [2]netip.Addr         // given out last: IPv4, IPv6
	dying   []*pod                // torn down; ports and link are not yet removed
	failed  []*pod                // as dying, but removing failed; tried again with the next
	stale   []target              // host ports whose UDP flows are to be forgotten
	reaping bool                  // a goroutine works on dying and stale
	reaped  *sync.Cond            // on mu: reaping became false
	closed  bool
	warned  map[string]bool // of which chains of other firewalls
}

// pod is what is known of one pod. Only the holder of turn works on it.
type pod struct {
	turn      chan struct{} // one token
	portsGone chan struct{} // closed when its host ports are free again
	gone      chan struct{} // closed when its addresses are free again
	lease     Lease         // guarded by Network.mu
}

func newPod(l Lease) *pod {
	return &pod{turn: make(chan struct{}, 1), portsGone: make(chan struct{}), gone: make(chan struct{}), lease: l}
}

// Request asks for the network of one pod.
type Request struct {
	ID    string // of the sandbox
	Name  string // of the pod, as people know it; default ID
	NetNS string // path of its network namespace
	Ports []PortMapping
	Pod   Pod // for the plugins of others: this package needs none of it
}

// Pod is what network plugins may be told of a pod.
type Pod struct {
	Namespace, Name, UID string
	Annotations          map[string]string
	Cgroup               string // path of the pod's cgroup
	DNS                  DNS
}

// DNS is how a pod resolves names.
type DNS struct{ Servers, Searches, Options []string }

// Result is what the pod got.
type Result struct {
	IPs []netip.Addr // IPv4 first
}

// New reads the state of earlier processes. It changes nothing in the kernel;
// that is for Up, or for the first Setup.
func New(cfg Config) (*Network, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	leases, err := openLeases(cfg.StateDir, cfg.Log)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(cfg.StateDir))
	n := &Network{
		cfg: cfg, log: cfg.Log, leases: leases, cidrs: []netip.Prefix{cfg.CIDR}, mtu: cfg.MTU,
		// The high bit keeps clear of the small numbers that people use.
		group: binary.BigEndian.Uint32(sum[:4])&0x3fffffff | 0x40000000,
		host:  make(chan *netlink.Handle, hostHandles),
		up:    make(chan struct{}, 1),
		rules: make(chan struct{}, 1),
		pods:  map[string]*pod{},
		taken: map[netip.Addr]string{}, warned: map[string]bool{},
	}
	n.reaped = sync.NewCond(&n.mu)
	if cfg.CIDR6.IsValid() {
		if ipv6Works() {
			n.cidrs = append(n.cidrs, cfg.CIDR6)
		} else {
			n.log.Warn("the kernel has no IPv6 or it is turned off, pods get IPv4 only")
		}
	}
	n.nft = newNFT("berth-"+hex.EncodeToString(sum[:4]), cfg.Bridge, n.cidrs)
	if err := errors.Join(n.adopt(), n.openHandles()); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// adopt takes over the leases on disk.
func (n *Network) adopt() error {
	leases, err := n.leases.load()
	if err != nil {
		return err
	}
	n.last[0], n.last[1] = n.leases.readLast()
	for _, l := range leases {
		for i, ip := range l.IPs {
			if i >= len(n.cidrs) || !n.cidrs[i].Contains(ip) {
				return fmt.Errorf("cannot use the ranges %v for pods: pod %s still has %s of another range; remove the pods first or run `berth cleanup`", n.cidrs, l.ID, ip)
			}
		}
		if len(l.IPs) != len(n.cidrs) {
			return fmt.Errorf("cannot use the ranges %v for pods: pod %s was set up with %d of them; remove the pods first or run `berth cleanup`", n.cidrs, l.ID, len(l.IPs))
		}
		p := newPod(l)
		n.pods[l.ID] = p
		for _, ip := range l.IPs {
			n.taken[ip] = l.ID
		}
		if l.releasing {
			n.dying = append(n.dying, p)
		}
	}
	return nil
}

// Setup gives the pod its network and returns its addresses. Repeated, it
// returns the same, and repairs what is missing; other ports than before replace
// them.
func (n *Network) Setup(ctx context.Context, req Request) (Result, error) {
	res, err := n.setup(ctx, req)
	if err != nil {
		return Result{}, fmt.Errorf("cannot set up the pod's network: %w", err)
	}
	return res, nil
}

func (n *Network) setup(ctx context.Context, req Request) (Result, error) {
	if req.ID == "" || len(req.ID) > maxAlias {
		return Result{}, fmt.Errorf("its id has %d bytes, want 1–%d", len(req.ID), maxAlias)
	}
	if err := validatePorts(req.Ports, len(n.cidrs) > 1); err != nil {
		return Result{}, err
	}
	ns, err := openNamespace(req.NetNS)
	if err != nil {
		return Result{}, err
	}
	defer ns.close()
	if err := n.ensureUp(ctx); err != nil {
		return Result{}, err
	}
	p, before, err := n.claim(ctx, req, ns.inode)
	if err != nil {
		return Result{}, err
	}
	defer func() { <-p.turn }()
	if err := n.provide(ctx, ns, p, before); err != nil {
		n.giveUp(p, before)
		return Result{}, err
	}
	return Result{IPs: slices.Clone(n.leaseOf(p).IPs)}, nil
}

// provide makes true what the pod's lease says.
func (n *Network) provide(ctx context.Context, ns *namespace, p *pod, before Lease) error {
	h, err := n.handle()
	if err != nil {
		return err
	}
	defer n.putHandle(h)
	l := n.leaseOf(p)
	was, want := targets(before.Ports, l.IPs), targets(l.Ports, l.IPs)
	plugged := before.Namespace == l.Namespace && n.plugged(h, l)
	if plugged && slices.Equal(was, want) {
		return nil
	}
	if err := checkHostPorts(l.Ports, before.Ports, l.IPs); err != nil {
		return err
	}
	// On disk before in the kernel: what a killed process leaves can be found.
	if before.ID == "" {
		err = n.leases.create(l)
		n.leases.rememberLast(l.IPs)
	} else {
		err = n.leases.replace(l)
	}
	if err != nil {
		return err
	}
	if !plugged {
		err := n.plug(h, ns, l)
		if err != nil && !n.bridgeExists(h) {
			n.log.Warn("the pods' bridge was deleted from outside, making it anew", "bridge", n.cfg.Bridge)
			if err = n.Up(ctx); err == nil {
				err = n.plug(h, ns, l)
			}
		}
		if err != nil {
			return err
		}
	}
	return n.setHostPorts(was, want)
}

// setHostPorts changes a pod's host ports.
func (n *Network) setHostPorts(was, want []target) error {
	if len(was) == 0 && len(want) == 0 {
		return nil
	}
	err := n.holdRules(func() error {
		if err := n.removePorts(was); err != nil {
			return err
		}
		err := n.nft.add(want)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) {
			// Someone flushed our table or put entries into it. Writing all
			// of it includes the new ports.
			n.log.Warn("nftables rules of the pods' network were changed from outside, writing them anew", "err", err)
			err = n.writeTable()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot lead host ports to the pod: %w", err)
	}
	n.forgetSoon(want)
	return nil
}

func (n *Network) leaseOf(p *pod) Lease {
	n.mu.Lock()
	defer n.mu.Unlock()
	return p.lease
}

// List returns what pods have, in no order; without those that were torn down.
func (n *Network) List() []Lease {
	n.mu.Lock()
	defer n.mu.Unlock()
	ls := make([]Lease, 0, len(n.pods))
	for _, p := range n.pods {
		if !p.lease.releasing {
			ls = append(ls, p.lease)
		}
	}
	return ls
}

// hostHandles is how many changes at once find an open socket.
const hostHandles = 4

// openHandles opens all sockets that are kept, so that how many a process holds
// does not depend on how many pods happened to come and go at once.
func (n *Network) openHandles() error {
	for range hostHandles {
		h, err := n.handle()
		if err != nil {
			return err
		}
		defer n.putHandle(h)
	}
	return nil
}

// handle takes an idle socket or makes one.
func (n *Network) handle() (*netlink.Handle, error) {
	select {
	case h := <-n.host:
		return h, nil
	default:
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("cannot open a netlink socket: %w", err)
	}
	return h, nil
}

func (n *Network) putHandle(h *netlink.Handle) {
	select {
	case n.host <- h:
	default:
		h.Close()
	}
}
