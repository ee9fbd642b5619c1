package status

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/format"
)

// retryFirst and retryMost bound the wait after a failed call.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 30 * time.Second
)

// step is what a sink needs next of a pod.
type step int

const (
	nothing step = iota
	write
	remove
)

// priority is in which queue a pod waits.
type priority int

const (
	notQueued priority = iota
	normal
	urgent // Ready has changed
)

// sender brings statuses to one sink. Manager.mu guards its lists.
type sender struct {
	m     *Manager
	index int // of the sink, in entry.sent
	cfg   SinkConfig
	log   *slog.Logger
	wake  chan struct{} // there is something to do; capacity 1

	urgent, normal []*entry
	waiting        []*entry // for their retry time, in no order
	active         int      // calls under way
}

// next says what the sink needs of a pod now. m.mu is held.
func (s *sender) next(e *entry) step {
	d := &e.sent[s.index]
	absent := s.cfg.API && e.latest.Ref.API == ""
	switch {
	case e.dropped || d.removed || absent:
		return nothing
	case e.latest.Status != nil && (d.version < e.latest.Version || s.cfg.API && d.api != e.latest.Ref.API):
		return write
	case e.finished:
		return remove
	}
	return nothing
}

// queue puts a pod where it belongs, unless a call for it is under way: the end
// of that queues it again. m.mu is held.
func (s *sender) queue(e *entry) {
	d := &e.sent[s.index]
	if d.busy || s.next(e) == nothing {
		return
	}
	if !d.retry.IsZero() {
		return // it is among the waiting
	}
	want := normal
	// That a new pod isn't ready is no news.
	if ready := readyStatus(e.latest.Status); ready != d.ready && (ready == corev1.ConditionTrue || d.ready == corev1.ConditionTrue) {
		want = urgent
	}
	// One that has become urgent is in both queues; the first to come counts.
	if want > d.queued {
		d.queued = want
		if want == urgent {
			s.urgent = append(s.urgent, e)
		} else {
			s.normal = append(s.normal, e)
		}
	}
	s.poke()
}

func (s *sender) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run makes calls until ctx ends and all of them have.
func (s *sender) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		for _, c := range s.due() {
			calls.Go(func() { s.call(ctx, c) })
		}
		timer.Reset(s.untilRetry())
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// call is one call of the sink.
type call struct {
	entry *entry
	step  step
	Update
}

// due takes what may be called now.
func (s *sender) due() (calls []call) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	now := time.Now()
	still := s.waiting[:0]
	for _, e := range s.waiting {
		d := &e.sent[s.index]
		switch {
		case e.dropped || d.retry.IsZero():
		case d.retry.After(now):
			still = append(still, e)
		default:
			d.retry = time.Time{}
			s.queue(e)
		}
	}
	clear(s.waiting[len(still):])
	s.waiting = still
	for s.active < s.cfg.Parallel {
		e := pop(&s.urgent)
		if e == nil {
			e = pop(&s.normal)
		}
		if e == nil {
			break
		}
		d := &e.sent[s.index]
		if d.queued == notQueued || d.busy {
			continue // the other queue was first
		}
		d.queued = notQueued
		if step := s.next(e); step != nothing {
			d.busy = true
			s.active++
			calls = append(calls, call{entry: e, step: step, Update: e.latest})
		}
	}
	return calls
}

func pop(q *[]*entry) *entry {
	if len(*q) == 0 {
		*q = nil
		return nil
	}
	e := (*q)[0]
	(*q)[0] = nil
	*q = (*q)[1:]
	return e
}

// untilRetry is how long nothing happens by time alone.
func (s *sender) untilRetry() time.Duration {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	wait := time.Hour
	for _, e := range s.waiting {
		wait = min(wait, time.Until(e.sent[s.index].retry))
	}
	return max(0, wait)
}

// call makes one call and takes in how it ended.
func (s *sender) call(ctx context.Context, c call) {
	callCtx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var err error
	if c.step == remove {
		err = s.cfg.Sink.Remove(callCtx, c.Ref)
	} else {
		err = s.cfg.Sink.Write(callCtx, c.Ref, c.Version, c.Status)
	}
	wait := s.ended(c, err)
	if wait > 0 && ctx.Err() == nil {
		s.log.Warn("cannot send status, will retry", "pod", format.PodDesc(c.Ref.Name, c.Ref.Namespace, string(c.Ref.UID)),
			"version", c.Version, "err", err, "retry", wait)
	}
}

// ended takes in the end of a call; it returns the wait before the next, if it
// has failed.
func (s *sender) ended(c call, err error) (wait time.Duration) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	d := &c.entry.sent[s.index]
	d.busy = false
	s.active--
	defer s.poke() // a place is free
	if c.entry.dropped {
		return 0
	}
	current := !s.cfg.API || c.Ref.API == c.entry.latest.Ref.API
	switch {
	case err == nil || errors.Is(err, ErrGone):
		d.tries = 0
		if err != nil || c.step == remove {
			// Of an object in the API that was replaced meanwhile, the end
			// means nothing.
			d.removed = current
		} else {
			d.version, d.ready, d.api = c.Version, readyStatus(c.Status), c.Ref.API
		}
	case current:
		d.tries++
		wait = retryWait(d.tries, c.Ref.UID)
		d.retry = time.Now().Add(wait)
		s.waiting = append(s.waiting, c.entry)
	}
	s.queue(c.entry)
	s.m.dropDone(c.entry)
	s.m.checkSettled()
	return wait
}

// retryWait is the wait after the n-th failure in a row. It doubles, and differs
// from pod to pod, so that many pods don't come back as one.
func retryWait(n int, uid types.UID) time.Duration {
	wait := retryMost
	if n < 10 {
		wait = min(retryMost, retryFirst<<(n-1))
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return wait*3/4 + wait*time.Duration(h.Sum32()%1000)/2000
}
