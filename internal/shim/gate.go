package shim

import (
	"context"
	"sync"
)

// Gate lets calls through until somebody closes it to be alone. The zero value is
// open. Safe for concurrent use.
type Gate struct {
	mu     sync.Mutex
	inside int
	shut   chan struct{} // closed when the gate opens again; nil: it is open
	left   chan struct{} // closed when nobody is inside any more; nil: nobody waits for that
}

// Enter waits while the gate is shut. Who has entered calls leave once.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	for {
		g.mu.Lock()
		shut := g.shut
		if shut == nil {
			g.inside++
			g.mu.Unlock()
			return g.leave, nil
		}
		g.mu.Unlock()
		select {
		case <-shut:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.left != nil {
		close(g.left)
		g.left = nil
	}
}

// Shut keeps newcomers waiting and returns when nobody is inside. If ctx ends before
// that the gate is open again.
func (g *Gate) Shut(ctx context.Context) (open func(), err error) {
	for {
		g.mu.Lock()
		if g.shut == nil {
			break
		}
		other := g.shut // somebody else is alone
		g.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	shut := make(chan struct{})
	g.shut = shut
	var left chan struct{}
	if g.inside > 0 {
		left = make(chan struct{})
		g.left = left
	}
	g.mu.Unlock()
	open = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.shut, g.left = nil, nil
		close(shut)
	}
	if left == nil {
		return open, nil
	}
	select {
	case <-left:
		return open, nil
	case <-ctx.Done():
		open()
		return nil, ctx.Err()
	}
}
