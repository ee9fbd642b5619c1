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

	"github.com/berth-run/berth/internal/cri/network/ipam"
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
	NetNS string // path of its network namespace
	Ports []PortMapping
}

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
		host:  make(chan *netlink.Handle, 4),
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
	if err := n.adopt(); err != nil {
		return nil, errors.Join(err, leases.close())
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

// Up makes the bridge, the rules and the host ports of all known pods exist. It
// may be repeated: it then repairs what others removed. Links of pods that
// vanished are logged; Setup makes them anew.
func (n *Network) Up(ctx context.Context) error { return n.bringUp(ctx, true) }

func (n *Network) bringUp(ctx context.Context, again bool) error {
	select {
	case n.up <- struct{}{}:
		defer func() { <-n.up }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if n.bridgeIndex() != 0 && !again {
		return nil // another pod was faster
	}
	h, err := n.handle()
	if err != nil {
		return err
	}
	defer n.putHandle(h)
	if n.mtu == 0 {
		n.mtu = hostMTU(h)
	}
	index, err := n.ensureBridge(h)
	if err != nil {
		return err
	}
	if err := n.setSysctls(); err != nil {
		return err
	}
	n.bridge.Store(int64(index))
	n.replug(h)
	if err := n.holdRules(n.writeTable); err != nil {
		n.bridge.Store(0)
		return err
	}
	if err := n.passFirewalls(); err != nil {
		n.log.Warn("cannot make sure that other firewalls let pods through", "err", err)
	}
	n.startReaper()
	return nil
}

// ensureUp is Up if it was not done yet.
func (n *Network) ensureUp(ctx context.Context) error {
	if n.bridgeIndex() != 0 {
		return nil
	}
	return n.bringUp(ctx, false)
}

func (n *Network) bridgeIndex() int { return int(n.bridge.Load()) }

// holdRules runs change while nobody else changes host ports.
func (n *Network) holdRules(change func() error) error {
	n.rules <- struct{}{}
	defer func() { <-n.rules }()
	return change()
}

// writeTable must be called by the holder of rules, for a table written from an
// older list of pods must not replace a newer one.
func (n *Network) writeTable() error {
	var ts []target
	for _, l := range n.List() {
		ts = append(ts, targets(l.Ports, l.IPs)...)
	}
	return n.nft.replace(ts)
}

// replug connects links with the bridge again, for it may have been deleted and
// made anew.
func (n *Network) replug(h *netlink.Handle) {
	for _, l := range n.List() {
		link, err := h.LinkByName(l.Link)
		switch {
		case err != nil:
			n.log.Warn("a pod has lost its network", "id", l.ID, "link", l.Link, "err", err)
		case link.Attrs().Alias != l.ID:
			n.log.Warn("the network of a pod was not set up to the end", "id", l.ID, "link", l.Link)
		case link.Attrs().MasterIndex != n.bridgeIndex():
			if err := errors.Join(h.LinkSetMasterByIndex(link, n.bridgeIndex()), h.LinkSetHairpin(link, true)); err != nil {
				n.log.Warn("cannot connect a pod with the bridge again", "id", l.ID, "link", l.Link, "err", err)
				continue
			}
			n.log.Info("connected a pod with the bridge again", "id", l.ID, "link", l.Link)
		}
	}
}

// Setup gives the pod its network and returns its addresses. Repeated, it
// returns the same, and repairs what is missing; other ports than before replace
// them.
func (n *Network) Setup(ctx context.Context, req Request) (Result, error) {
	res, err := n.setup(ctx, req)
	if err != nil {
		return Result{}, fmt.Errorf("cannot set up the network of pod %s: %w", req.ID, err)
	}
	return res, nil
}

func (n *Network) setup(ctx context.Context, req Request) (Result, error) {
	if req.ID == "" {
		return Result{}, errors.New("it has no id")
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
	if err := n.provide(ns, p, before); err != nil {
		n.giveUp(p, before)
		return Result{}, err
	}
	return Result{IPs: slices.Clone(n.leaseOf(p).IPs)}, nil
}

// provide makes true what the pod's lease says.
func (n *Network) provide(ns *namespace, p *pod, before Lease) error {
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
		if err := n.plug(h, ns, l); err != nil {
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

// claim takes the pod's turn and reserves addresses and ports for it. It waits
// for an earlier call for the same id, and for the end of a Teardown. before is
// the lease as it was; its ID is empty if there was none.
func (n *Network) claim(ctx context.Context, req Request, inode uint64) (p *pod, before Lease, err error) {
	for {
		p, before, blocked, err := n.reserve(req, inode)
		if err != nil || blocked == nil && before.ID == "" {
			return p, before, err
		}
		turn := p.turn
		if blocked != nil {
			turn = nil // its turn is not what we wait for
		}
		select {
		case <-ctx.Done():
			return nil, Lease{}, ctx.Err()
		case <-blocked:
		case <-p.gone:
		case turn <- struct{}{}:
			before, blocked, err := n.renew(p, req, inode)
			if err == nil && blocked == nil {
				return p, before, nil
			}
			<-p.turn
			if err != nil {
				return nil, Lease{}, err
			}
			select {
			case <-ctx.Done():
				return nil, Lease{}, ctx.Err()
			case <-blocked:
			}
		}
	}
}

// reserve returns the pod, with its turn taken if it is new. If it must wait for
// a pod that is being torn down it returns that one, and what to wait for.
func (n *Network) reserve(req Request, inode uint64) (p *pod, before Lease, blocked <-chan struct{}, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, Lease{}, nil, ErrClosed
	}
	if p := n.pods[req.ID]; p != nil {
		if p.lease.releasing {
			blocked = p.gone
		}
		return p, p.lease, blocked, nil
	}
	if owner, err := n.portOwner(req.ID, req.Ports); owner != nil || err != nil {
		return owner, Lease{}, waitFor(owner), err
	}
	l := Lease{ID: req.ID, NetNS: req.NetNS, Namespace: inode, Ports: slices.Clone(req.Ports), Link: n.freeLinkName(req.ID)}
	for i, cidr := range n.cidrs {
		ip, err := ipam.Next(ipam.State{Range: cidr, Last: n.last[i], Taken: func(a netip.Addr) bool { return n.taken[a] != "" }})
		if err != nil {
			return nil, Lease{}, nil, fmt.Errorf("%w: %d pods have one; remove pods or choose a larger range with --network-cidr", err, len(n.pods))
		}
		l.IPs = append(l.IPs, ip)
	}
	for i, ip := range l.IPs {
		n.taken[ip], n.last[i] = req.ID, ip
	}
	p = newPod(l)
	p.turn <- struct{}{}
	n.pods[req.ID] = p
	return p, Lease{}, nil, nil
}

// renew updates the lease of a pod whose turn the caller has. If blocked is not
// nil nothing was done, and the caller must begin anew after it was closed.
func (n *Network) renew(p *pod, req Request, inode uint64) (before Lease, blocked <-chan struct{}, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return Lease{}, nil, ErrClosed
	}
	if p.lease.releasing {
		return Lease{}, p.gone, nil
	}
	if owner, err := n.portOwner(req.ID, req.Ports); owner != nil || err != nil {
		return Lease{}, waitFor(owner), err
	}
	before = p.lease
	p.lease.NetNS, p.lease.Namespace, p.lease.Ports = req.NetNS, inode, slices.Clone(req.Ports)
	return before, nil, nil
}

// portOwner looks for another pod that has one of the ports: an error if it
// keeps them, the pod itself if it is being torn down. It must be called with mu
// held.
func (n *Network) portOwner(id string, ports []PortMapping) (*pod, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	var dying *pod
	for _, p := range n.pods {
		if p.lease.ID == id {
			continue
		}
		for _, have := range p.lease.Ports {
			for _, want := range ports {
				switch {
				case !want.overlaps(have):
				case p.lease.releasing:
					dying = p
				default:
					return nil, &PortTakenError{Port: want, By: "pod " + p.lease.ID}
				}
			}
		}
	}
	return dying, nil
}

func waitFor(dying *pod) <-chan struct{} {
	if dying == nil {
		return nil
	}
	return dying.portsGone
}

// freeLinkName must be called with mu held.
func (n *Network) freeLinkName(id string) string {
	for i := 0; ; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", n.cfg.StateDir, id, i))
		name := linkPrefix + hex.EncodeToString(sum[:5])
		free := true
		for _, p := range n.pods {
			free = free && p.lease.Link != name
		}
		if free {
			return name
		}
	}
}

// linkPrefix starts the name of each pod's port of the bridge.
const linkPrefix = "berth"

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

// Check reports whether bridge and rules are still there, and puts them back if
// not: firewalls like to flush the rules of others when they are reloaded.
func (n *Network) Check(ctx context.Context) error {
	h, err := n.handle()
	if err != nil {
		return err
	}
	defer n.putHandle(h)
	link, err := h.LinkByName(n.cfg.Bridge)
	intact := err == nil && link.Attrs().Index == n.bridgeIndex()
	table, err := n.nft.exists()
	if err != nil {
		return fmt.Errorf("cannot read nftables: %w", err)
	}
	forward, err := readSysctl("net/ipv4/ip_forward")
	if err != nil {
		return fmt.Errorf("cannot read whether packets are forwarded: %w", err)
	}
	if intact && table && forward == "1" {
		return n.passFirewalls() // another may have come up since
	}
	if n.bridgeIndex() != 0 {
		n.log.Warn("the pods' network was damaged from outside, repairing it", "bridge", intact, "rules", table, "forward", forward)
	}
	return n.Up(ctx)
}

// complete repeats a listing until nothing changed while the kernel gave it out,
// or for long enough that what is missing is of no interest.
func complete[T any](list func() ([]T, error)) (got []T, err error) {
	for range 10 {
		if got, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return got, err
		}
	}
	return got, nil
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
