package imagestore

import (
	"context"
	"sync"
)

// keyedLock is a set of locks by name. The unpacker takes them so that two
// pulls never fetch the same blob nor unpack the same layer at once. Safe for
// concurrent use.
type keyedLock struct {
	mu    sync.Mutex
	locks map[string]*namedLock // guarded by mu; holds only locks in use
}

type namedLock struct {
	held  chan struct{} // has one element while the lock is held
	users int           // holders and waiters; guarded by keyedLock.mu
}

func newKeyedLock() *keyedLock {
	return &keyedLock{locks: map[string]*namedLock{}}
}

// Lock waits for the lock named key, or for the end of ctx.
func (k *keyedLock) Lock(ctx context.Context, key string) error {
	k.mu.Lock()
	l, ok := k.locks[key]
	if !ok {
		l = &namedLock{held: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()

	select {
	case l.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		k.leave(key, l)
		return ctx.Err()
	}
}

// Unlock frees the lock named key, which the caller must hold.
func (k *keyedLock) Unlock(key string) {
	k.mu.Lock()
	l, ok := k.locks[key]
	k.mu.Unlock()
	if !ok {
		panic("imagestore: unlock of a lock that is not held: " + key)
	}
	<-l.held
	k.leave(key, l)
}

func (k *keyedLock) leave(key string, l *namedLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.users--
	if l.users == 0 {
		delete(k.locks, key)
	}
}

// gate counts calls that are inside, so that somebody can wait until all have
// left and none will enter any more.
type gate struct {
	mu     sync.Mutex
	shut   bool
	inside sync.WaitGroup
}

// enter reports whether the caller may go on; if so it must call leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.inside.Add(1)
	return true
}

func (g *gate) leave() { g.inside.Done() }

// close lets nobody in any more and waits for those inside.
func (g *gate) close() {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	g.inside.Wait()
}
