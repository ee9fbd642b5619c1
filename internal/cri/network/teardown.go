package network

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Teardown takes the pod's network away. It returns at once: the kernel needs a
// moment to remove rules and links, so that is done in the background, for all
// pods that wait for it together. Ports and addresses are free when it is done; a
// Setup that wants them waits. Teardown may be repeated, and the pod's namespace
// may be gone already.
func (n *Network) Teardown(ctx context.Context, id string) error {
	n.mu.Lock()
	p, closed := n.pods[id], n.closed
	n.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if p == nil {
		return nil
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-p.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot tear down the network of pod %s: %w", id, ctx.Err())
	}
	if n.leaseOf(p).releasing {
		return nil
	}
	if err := n.release(p); err != nil {
		return fmt.Errorf("cannot tear down the network of pod %s: %w", id, err)
	}
	return nil
}

// giveUp undoes a Setup that failed. The caller has the pod's turn. A pod that
// had a network before keeps its addresses, for it may be using them.
func (n *Network) giveUp(p *pod, before Lease) {
	if before.ID != "" {
		n.setLease(p, before)
		return
	}
	if err := n.release(p); err != nil {
		n.log.Warn("cannot undo a network set-up that failed", "id", n.leaseOf(p).ID, "err", err)
	}
}

// release hands the pod to the reaper. The caller has the pod's turn.
func (n *Network) release(p *pod) error {
	l := n.leaseOf(p)
	if err := n.leases.markGone(l.ID); err != nil {
		return err
	}
	n.mu.Lock()
	p.lease.releasing = true
	n.dying = append(append(n.dying, p), n.failed...)
	n.failed = nil
	n.mu.Unlock()
	n.startReaper()
	return nil
}

// forgetSoon has the kernel forget where UDP packets to these ports went.
func (n *Network) forgetSoon(ts []target) {
	n.mu.Lock()
	for _, t := range ts {
		if t.Proto == UDP.number() {
			n.stale = append(n.stale, t)
		}
	}
	n.mu.Unlock()
	n.startReaper()
}

func (n *Network) setLease(p *pod, l Lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.lease = l
}

// startReaper makes sure that a goroutine does what is due. Flush and Close wait
// for it.
func (n *Network) startReaper() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reaping || len(n.dying)+len(n.stale) == 0 {
		return
	}
	n.reaping = true
	go n.reap()
}

// reap works until nothing is due. Removing a rule or a link takes the kernel
// tens of milliseconds, nearly all of it waiting, so what became due in the
// meantime is done together.
func (n *Network) reap() {
	for {
		n.mu.Lock()
		dying, stale := n.dying, n.stale
		n.dying, n.stale = nil, nil
		if len(dying)+len(stale) == 0 {
			n.reaping = false
			n.reaped.Broadcast()
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		dying, withdrawn := n.withdraw(dying)
		if err := forgetFlows(append(stale, withdrawn...)); err != nil {
			n.log.Warn("cannot forget where UDP packets to host ports went before", "err", err)
		}
		n.bury(dying)
	}
}

// withdraw removes the host ports of pods. It returns the pods for which that
// worked, and what was removed.
func (n *Network) withdraw(dying []*pod) ([]*pod, []target) {
	var ts []target
	for _, p := range dying {
		l := n.leaseOf(p)
		ts = append(ts, targets(l.Ports, l.IPs)...)
	}
	if err := n.holdRules(func() error { return n.removePorts(ts) }); err != nil {
		n.fail(dying, "cannot withdraw host ports of pods that are gone", err)
		return nil, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range dying {
		p.lease.Ports = nil
		select {
		case <-p.portsGone: // by an earlier try
		default:
			close(p.portsGone)
		}
	}
	return dying, ts
}

// fail keeps pods, with what they have, for a later try.
func (n *Network) fail(pods []*pod, msg string, err error) {
	//nolint:sloglint // callers give fixed texts
	n.log.Error(msg, "effect", "their addresses stay taken until it works", "count", len(pods), "err", err)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed = append(n.failed, pods...)
}

// removePorts must be called by the holder of rules.
func (n *Network) removePorts(ts []target) error {
	err := n.nft.remove(ts)
	if errors.Is(err, unix.ENOENT) {
		// Some are not there; write the table as it should be.
		err = n.writeTable()
	}
	return err
}

// bury deletes the links of pods and frees their addresses.
func (n *Network) bury(dying []*pod) {
	if len(dying) == 0 {
		return
	}
	var marked []*pod
	for _, p := range dying {
		if err := markLink(n.leaseOf(p).Link, n.group); err != nil {
			n.fail([]*pod{p}, "cannot delete links of pods that are gone", err)
			continue
		}
		marked = append(marked, p)
	}
	if err := delGroup(n.group); err != nil {
		n.fail(marked, "cannot delete links of pods that are gone", err)
		return
	}
	h, err := n.handle()
	if err != nil {
		n.fail(marked, "cannot delete links of pods that are gone", err)
		return
	}
	defer n.putHandle(h)
	for _, p := range marked {
		l := n.leaseOf(p)
		n.takeLeave(h, l.IPs)
		if err := n.leases.forget(l.ID); err != nil {
			n.fail([]*pod{p}, "cannot forget network leases of pods that are gone", err)
			continue
		}
		n.mu.Lock()
		delete(n.pods, l.ID)
		for _, ip := range l.IPs {
			delete(n.taken, ip)
		}
		n.mu.Unlock()
		close(p.gone)
	}
}

// Flush waits until nothing is left of the pods torn down so far.
func (n *Network) Flush() {
	n.startReaper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.reaping {
		n.reaped.Wait()
	}
}

// Close waits for deletions under way and lets go of sockets and files. Pods
// keep their network.
func (n *Network) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	for n.reaping {
		n.reaped.Wait()
	}
	n.mu.Unlock()
	for {
		select {
		case h := <-n.host:
			h.Close()
		default:
			return n.leases.close()
		}
	}
}

// Reclaim tears down the network of each pod that live does not name, and
// returns how many there were.
func (n *Network) Reclaim(ctx context.Context, live func(id string) bool) (int, error) {
	var errs []error
	var count int
	for _, l := range n.List() {
		if live(l.ID) {
			continue
		}
		if err := n.Teardown(ctx, l.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		count++
		n.log.Info("reclaimed the network of a pod that is gone", "id", l.ID, "ips", l.IPs)
	}
	return count, errors.Join(errs...)
}

// Cleanup removes everything: links, bridge, rules and state. The Network is
// closed afterwards.
func (n *Network) Cleanup(ctx context.Context) error {
	var errs []error
	for _, l := range n.List() {
		errs = append(errs, n.Teardown(ctx, l.ID))
	}
	n.Flush()
	errs = append(errs, n.removeBridge(), n.nft.drop(), n.leaveFirewalls())
	for _, name := range n.leases.forwards() {
		n.log.Info("packet forwarding stays on, other software may rely on it by now; it was off before berth", "sysctl", strings.ReplaceAll(name, "/", "."))
	}
	errs = append(errs, n.Close(), n.leases.destroy())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot clean up the network of pods: %w", err)
	}
	return nil
}

// removeBridge deletes the bridge, if it is ours, with whatever of ours is still
// connected to it.
func (n *Network) removeBridge() error {
	h, err := n.handle()
	if err != nil {
		return err
	}
	defer n.putHandle(h)
	br, err := h.LinkByName(n.cfg.Bridge)
	if err != nil && noSuchLink(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot find bridge %s: %w", n.cfg.Bridge, err)
	}
	if br.Attrs().Alias != n.alias() && !n.halfMade(br) {
		n.log.Info("leaving a bridge of the same name alone, it is not ours", "bridge", n.cfg.Bridge)
		return nil
	}
	links, err := complete(h.LinkList)
	if err != nil {
		return fmt.Errorf("cannot list links: %w", err)
	}
	var errs []error
	for _, l := range links {
		if a := l.Attrs(); a.MasterIndex == br.Attrs().Index && l.Type() == "veth" && len(a.Name) == maxLinkName && a.Name[:len(linkPrefix)] == linkPrefix {
			errs = append(errs, markLink(a.Name, n.group))
		}
	}
	errs = append(errs, delGroup(n.group))
	if err := h.LinkDel(br); err != nil && !noSuchLink(err) {
		errs = append(errs, fmt.Errorf("cannot delete bridge %s: %w", n.cfg.Bridge, err))
	}
	n.bridge.Store(0)
	return errors.Join(errs...)
}
