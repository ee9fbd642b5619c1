package cri

import (
	"context"
	"sync"
	"time"
)

const (
	// layerAge is how old the measure of a layer may be.
	layerAge = 10 * time.Second
	// layerShare: the age grows until measuring takes no more than this part of
	// the time.
	layerShare = 50
	// layerPatience is how long somebody who could have an older measure waits
	// for the new one.
	layerPatience = time.Second
)

// layerUsage is what a container wrote to its own layer.
type layerUsage struct {
	at            time.Time // zero: never measured
	bytes, inodes uint64
}

// layerMeter keeps the last measure of one layer, since measuring walks all its
// files. The zero value is ready.
type layerMeter struct {
	mu      sync.Mutex // guards what follows; not held while measuring
	last    layerUsage
	expires time.Time
	walk    chan struct{} // closed when the measuring under way ends; nil: none is
}

// read gives a measure that is not too old, with ok false if there never was
// one. It measures through background, which runs a function in a goroutine.
func (m *layerMeter) read(ctx context.Context, background func(func()), measure func(context.Context) (bytes, inodes int64, err error)) (u layerUsage, ok bool) {
	m.mu.Lock()
	last, ended := m.last, m.walk
	if time.Now().Before(m.expires) {
		m.mu.Unlock()
		return last, true
	}
	if ended == nil {
		ended = make(chan struct{})
		m.walk = ended
		// Somebody who gives up must not end it for the others.
		ctx := context.WithoutCancel(ctx)
		background(func() { m.measure(ctx, measure) })
	}
	m.mu.Unlock()

	var enough <-chan time.Time // nil: there is nothing to fall back to
	if !last.at.IsZero() {
		t := time.NewTimer(layerPatience)
		defer t.Stop()
		enough = t.C
	}
	select {
	case <-ended:
	case <-enough:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, !m.last.at.IsZero()
}

// measure walks the layer once. After an error the last measure stays, and the
// next read tries again.
func (m *layerMeter) measure(ctx context.Context, measure func(context.Context) (bytes, inodes int64, err error)) {
	began := time.Now()
	bytes, inodes, err := measure(ctx)
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.last = layerUsage{at: now, bytes: uint64(bytes), inodes: uint64(inodes)}
		m.expires = now.Add(max(layerAge, layerShare*now.Sub(began)))
	}
	close(m.walk)
	m.walk = nil
}
