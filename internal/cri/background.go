package cri

import "sync"

// background counts work that goes on after the call that began it. Unlike with
// a WaitGroup, work may begin while somebody waits.
type background struct {
	mu    sync.Mutex
	n     int           // under way
	ended chan struct{} // closed when n falls to 0; nil: nobody waits
}

// Go runs f in a goroutine that Wait waits for.
func (b *background) Go(f func()) {
	b.mu.Lock()
	b.n++
	b.mu.Unlock()
	go func() {
		defer b.done()
		f()
	}()
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n--
	if b.n == 0 && b.ended != nil {
		close(b.ended)
		b.ended = nil
	}
}

// Wait returns at a moment when nothing is under way.
func (b *background) Wait() {
	b.mu.Lock()
	if b.n == 0 {
		b.mu.Unlock()
		return
	}
	if b.ended == nil {
		b.ended = make(chan struct{})
	}
	ended := b.ended
	b.mu.Unlock()
	<-ended
}
