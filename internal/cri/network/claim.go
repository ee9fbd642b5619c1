package network

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	"github.com/berth-run/berth/internal/cri/network/ipam"
)

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
	l := Lease{ID: req.ID, Name: req.Name, NetNS: req.NetNS, Namespace: inode, Ports: slices.Clone(req.Ports), Link: n.freeLinkName(req.ID)}
	for i, cidr := range n.cidrs {
		ip, err := ipam.Next(ipam.State{Range: cidr, Last: n.last[i], Taken: func(a netip.Addr) bool { return n.taken[a] != "" }})
		if err != nil {
			if p := n.anyDying(); p != nil {
				return p, Lease{}, p.gone, nil // an address is about to be free
			}
			return nil, Lease{}, nil, fmt.Errorf("%w (pods with one: %d): remove pods, or choose a larger range with --network-cidr", err, len(n.pods))
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

// anyDying finds a pod that was torn down and whose end is under way; nil: there
// is none. Those whose end failed do not count: nobody knows when it comes. It
// must be called with mu held.
func (n *Network) anyDying() *pod {
	for _, p := range n.pods {
		if p.lease.releasing && !slices.Contains(n.failed, p) {
			return p
		}
	}
	return nil
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
					return nil, &PortTakenError{Port: want, By: p.lease.pod()}
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
