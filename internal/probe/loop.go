package probe

import (
	"container/heap"
	"context"
	"errors"
	"time"
)

// idle is how long the loop sleeps when no check is due.
const idle = time.Hour

// Run carries out checks until ctx ends; it returns nil when all of them have
// ended. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		m.deliver(ctx)
	}()
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(time.Until(m.advance(ctx)))
		select {
		case <-timer.C:
		case <-m.wake:
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.workers.Wait()
	<-delivered
	return nil
}

// advance begins the checks that are due and returns when to look again.
func (m *Manager) advance(ctx context.Context) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for len(m.due) > 0 && !m.due[0].due.After(now) {
		r := heap.Pop(&m.due).(*runner)
		if r.flight != nil {
			// Its time-out has passed and it has not ended.
			m.count(r, Check{At: now, Output: "the check before still has not ended after its time-out"}, now)
			m.again(r, now)
			continue
		}
		m.lanes[r.lane].add(r)
	}
	m.asleep = now.Add(idle)
	for i := range m.lanes {
		m.fill(ctx, &m.lanes[i], now)
		if t := m.lanes[i].lookAgain(); !t.IsZero() {
			m.asleep = minTime(m.asleep, t)
		}
	}
	if len(m.due) > 0 {
		m.asleep = minTime(m.asleep, m.due[0].due)
	}
	return m.asleep
}

// fill begins checks of one lane as far as its limit allows. m.mu is held.
func (m *Manager) fill(ctx context.Context, l *lane, now time.Time) {
	if l.waiting() == 0 || m.stopped {
		return
	}
	l.settle(now)
	for {
		r, ok := l.next()
		if !ok {
			return
		}
		m.begin(ctx, l, r, now)
	}
}

// begin starts one check. m.mu is held.
func (m *Manager) begin(ctx context.Context, l *lane, r *runner, now time.Time) {
	checkCtx, cancel := context.WithTimeout(ctx, r.timing.Timeout)
	f := &flight{lane: l, began: now, early: r.early, cancel: cancel}
	r.flight = f
	l.young = append(l.young, f)
	// What the check needs is taken here, under the lock.
	m.handOver(ctx, job{ctx: checkCtx, runner: r, flight: f, check: r.check, timeout: r.timing.Timeout})
}

// carryOut makes one check.
func (m *Manager) carryOut(ctx context.Context, j job) {
	defer j.flight.cancel()
	if e, ok := j.check.(*execCheck); ok {
		// The result must not wait for a process that can't be killed.
		defer m.watch(j.ctx, j.runner, j.flight, e.late(j.timeout))()
	}
	v := j.check.check(j.ctx, j.timeout)
	for range tries - 1 {
		if !v.void || j.ctx.Err() != nil {
			break
		}
		v = j.check.check(j.ctx, j.timeout)
	}
	m.end(ctx, j.runner, j.flight, v)
}

// watch counts a check as failed when its time is up, whether it ends or not.
// The function returned ends the watch.
func (m *Manager) watch(checkCtx context.Context, r *runner, f *flight, late verdict) (stop func()) {
	done := make(chan struct{})
	cancel := context.AfterFunc(checkCtx, func() {
		defer close(done)
		if errors.Is(checkCtx.Err(), context.DeadlineExceeded) {
			m.overdue(r, f, late)
		}
	})
	return func() {
		if !cancel() {
			<-done
		}
	}
}

func (m *Manager) overdue(r *runner, f *flight, late verdict) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.flight != f || r.gone || m.stopped {
		return
	}
	f.counted, r.slow = true, true
	m.count(r, f.check(late, now), now)
	m.again(r, f.began)
}

// end takes in the verdict of a check that has ended and lets the next one begin.
func (m *Manager) end(ctx context.Context, r *runner, f *flight, v verdict) {
	now := time.Now()
	check := f.check(v, now)
	m.mu.Lock()
	defer m.mu.Unlock()
	r.flight, f.ended = nil, true
	r.slow = now.Sub(f.began) >= f.lane.slowAfter
	m.fill(ctx, f.lane, now)
	switch {
	case m.stopped || ctx.Err() != nil:
	case r.gone:
		delete(m.ending, r.want.Key)
		if r.successor != nil {
			m.put(r.successor)
		}
	case f.counted: // and in the queue already
	default:
		m.count(r, check, now)
		m.again(r, f.began)
	}
}

// check is the record of the flight that ends, or runs out of time, at now.
func (f *flight) check(v verdict, now time.Time) Check {
	return Check{
		At: f.began, Took: now.Sub(f.began), OK: v.ok, Warning: v.warning, Void: v.void, Early: f.early,
		Output: shorten(v.output, maxOutput),
	}
}

// count adds a check to its probe's tally and queues a change for delivery.
// m.mu is held.
func (m *Manager) count(r *runner, check Check, now time.Time) {
	r.ring.add(check)
	if m.cfg.Checked != nil {
		m.outbox = append(m.outbox, delivery{runner: r, checked: &Observation{Pod: r.pod, Probe: r.want, Check: check}})
		signal(m.results)
	}
	if check.Void || check.Early && !check.OK {
		return
	}
	r.rising = r.rising && !check.OK
	var flipped bool
	if r.tally, flipped = r.tally.Add(check.OK); !flipped {
		return
	}
	m.outbox = append(m.outbox, delivery{runner: r, changed: &Result{
		PodUID: r.pod.UID, Key: r.want.Key, Outcome: r.tally.Outcome, Message: check.Output, At: now,
	}})
	signal(m.results)
}

// again puts a probe back into the queue after a check made at last. m.mu is held.
func (m *Manager) again(r *runner, last time.Time) {
	if r.tally.Done {
		return
	}
	r.due, r.early = r.grid.Next(last, time.Now()), false
	if r.rising && !r.slow {
		if at, ok := r.grid.Early(last, r.asked); ok {
			r.due, r.early = at, true
			r.asked++
		}
	}
	m.put(r)
}

// put puts a probe into the queue and wakes the loop if it would sleep past it.
// m.mu is held.
func (m *Manager) put(r *runner) {
	m.due.put(r)
	if r.due.Before(m.asleep) {
		m.poke()
	}
}

func (m *Manager) poke() { signal(m.wake) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// deliver hands out results in order until ctx ends.
func (m *Manager) deliver(ctx context.Context) {
	for {
		select {
		case <-m.results:
		case <-ctx.Done():
			return
		}
		for {
			d, ok := m.nextDelivery()
			if !ok || ctx.Err() != nil {
				break
			}
			if d.checked != nil {
				m.cfg.Checked(*d.checked)
			} else {
				m.cfg.Changed(*d.changed)
			}
		}
	}
}

func (m *Manager) nextDelivery() (delivery, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.outbox) > 0 {
		d := m.outbox[0]
		m.outbox[0] = delivery{}
		m.outbox = m.outbox[1:]
		if !d.runner.gone {
			return d, true
		}
	}
	m.outbox = nil
	return delivery{}, false
}
