package network

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

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
			err := errors.Join(h.LinkSetMasterByIndex(link, n.bridgeIndex()), h.LinkSetHairpin(link, true))
			if err = errors.Join(err, n.introduce(h, link.Attrs().Index, l.IPs)); err != nil {
				n.log.Warn("cannot connect a pod with the bridge again", "id", l.ID, "link", l.Link, "err", err)
				continue
			}
			n.log.Info("connected a pod with the bridge again", "id", l.ID, "link", l.Link)
		}
	}
}

// Check reports whether bridge and rules are still there, and puts them back if
// not: firewalls like to flush the rules of others when they are reloaded.
func (n *Network) Check(ctx context.Context) error {
	h, err := n.handle()
	if err != nil {
		return err
	}
	defer n.putHandle(h)
	intact := n.bridgeExists(h)
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

// bridgeExists reports whether the bridge is the one that Up found or made.
func (n *Network) bridgeExists(h *netlink.Handle) bool {
	link, err := h.LinkByName(n.cfg.Bridge)
	return err == nil && link.Attrs().Index == n.bridgeIndex()
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
