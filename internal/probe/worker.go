package probe

import (
	"context"
	"time"
)

// maxIdle is how many workers stay for the next check. Their stacks have grown
// already, which takes a new goroutine a tenth of a check's time.
const maxIdle = 8

// job is one check to make, and all it needs.
type job struct {
	ctx     context.Context // ends at the time-out; belongs to this one call
	runner  *runner
	flight  *flight
	check   checker
	timeout time.Duration
}

// handOver gives a check to an idle worker or to a new one: a check never waits
// for another to end. m.mu is held.
func (m *Manager) handOver(ctx context.Context, j job) {
	select {
	case m.jobs <- j:
	default:
		m.workers.Go(func() { m.work(ctx, j) })
	}
}

// work makes one check after the other, until ctx ends or enough others idle.
func (m *Manager) work(ctx context.Context, j job) {
	for {
		m.carryOut(ctx, j)
		if !m.rest() {
			return
		}
		var ok bool
		select {
		case j = <-m.jobs:
			ok = true
		case <-ctx.Done():
		}
		m.mu.Lock()
		m.idle--
		m.mu.Unlock()
		if !ok {
			return
		}
	}
}

// rest reports whether a worker may stay.
func (m *Manager) rest() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle >= maxIdle {
		return false
	}
	m.idle++
	return true
}
