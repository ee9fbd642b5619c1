package network

import (
	"context"
	"errors"
	"fmt"
)

// Teardown takes the pod's network away. When it returns, host ports no longer
// lead to the pod and can be given to others; the link is deleted soon after,
// and only then are the addresses free. It may be repeated, and the pod's
// namespace may be gone already.
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
	if n.leaseOf(p).Releasing {
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
		before.Ready = false
		n.setLease(p, before)
		return
	}
	if err := n.release(p); err != nil {
		n.log.Warn("cannot undo a network set-up that failed", "id", n.leaseOf(p).ID, "err", err)
	}
}

// release withdraws the pod's host ports and hands link and addresses to the
// reaper. The caller has the pod's turn.
func (n *Network) release(p *pod) error {
	l := n.leaseOf(p)
	ports := targets(l.Ports, l.IPs)
	l.Releasing, l.Ready, l.Ports = true, false, nil
	if err := n.leases.write(l); err != nil {
		return err
	}
	if len(ports) == 0 {
		n.setLease(p, l)
	} else if err := n.holdRules(func() error {
		if err := n.nft.remove(ports); err != nil {
			return fmt.Errorf("cannot withdraw host ports: %w", err)
		}
		n.setLease(p, l)
		return nil
	}); err != nil {
		return err
	}
	n.mu.Lock()
	n.dying = append(n.dying, p)
	n.mu.Unlock()
	n.startReaper()
	if err := forgetFlows(ports); err != nil {
		n.log.Warn("cannot forget UDP flows of a pod that is gone", "id", l.ID, "err", err)
	}
	return nil
}

func (n *Network) setLease(p *pod, l Lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.lease = l
}

// startReaper makes sure that a goroutine works on dying pods. Flush and Close
// wait for it.
func (n *Network) startReaper() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reaping || len(n.dying) == 0 {
		return
	}
	n.reaping = true
	go n.reap()
}

// reap deletes links until none is left. The kernel waits some 30 ms for each
// deletion, so all that became due in the meantime are deleted together.
func (n *Network) reap() {
	for {
		n.mu.Lock()
		batch := n.dying
		n.dying = nil
		if len(batch) == 0 {
			n.reaping = false
			n.reaped.Broadcast()
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		n.bury(batch)
	}
}

// bury deletes the links of pods and frees their addresses. An address whose
// link cannot be deleted stays taken, until the next process tries again.
func (n *Network) bury(batch []*pod) {
	var safe []*pod
	for _, p := range batch {
		l := n.leaseOf(p)
		if err := markLink(l.Link, n.group); err != nil {
			n.log.Error("cannot delete a pod's link, its address stays taken", "id", l.ID, "ips", l.IPs, "err", err)
			continue
		}
		safe = append(safe, p)
	}
	if err := delGroup(n.group); err != nil {
		n.log.Error("cannot delete links of pods, their addresses stay taken", "count", len(safe), "err", err)
		return
	}
	for _, p := range safe {
		l := n.leaseOf(p)
		if err := n.leases.remove(l.ID); err != nil {
			n.log.Error("cannot forget a pod's network lease, its address stays taken", "id", l.ID, "ips", l.IPs, "err", err)
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

// Flush waits until the links of all pods torn down so far are deleted.
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
	errs = append(errs, n.removeBridge(), n.nft.drop())
	for _, name := range n.leases.forwards() {
		n.log.Info("packet forwarding stays on, other software may rely on it by now; it was off before berth", "sysctl", name)
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
	if br.Attrs().Alias != n.alias() {
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
