package podworker

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/lifecycle"
)

// Workers are the workers of all pods, by uid. Its methods may be called from
// any goroutine, also before Run; only Run and Wait block.
//
// Two pods of one name never run at once: the younger waits until nothing is
// left of the older. A pod that is to end does not wait, since nothing of it
// starts; so after a restart of the agent, hand over what is to end first.
type Workers struct {
	cfg  Config
	wake chan struct{} // tells Run to start what may run; capacity 1

	mu      sync.Mutex
	members map[types.UID]*member
	waiting []*member     // in the order they came
	changed chan struct{} // closed and replaced when a member goes
}

// member is one pod.
type member struct {
	uid    types.UID
	name   types.NamespacedName
	worker *Worker

	// What follows is guarded by Workers.mu.

	desired Desired
	running bool
}

// NewWorkers returns workers without pods. It starts nothing.
func NewWorkers(cfg Config) (*Workers, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return &Workers{
		cfg:     cfg,
		wake:    make(chan struct{}, 1),
		members: make(map[types.UID]*member),
		changed: make(chan struct{}),
	}, nil
}

// Run runs the workers until ctx ends. They then detach, and Run returns when
// the last one has: containers are left as they are. To stop pods with the
// agent, ask for their end first, and Wait.
func (s *Workers) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, m := range s.due() {
			running.Go(func() { s.run(ctx, m) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
	}
}

// run runs one worker and forgets it when its pod is finished.
func (s *Workers) run(ctx context.Context, m *member) {
	if err := m.worker.Run(ctx); err != nil {
		s.cfg.Log.Error("cannot run the pod", "uid", m.uid, "err", err)
	}
	s.mu.Lock()
	delete(s.members, m.uid)
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	s.poke()
}

// due takes the pods that may run from the waiting ones.
func (s *Workers) due() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil
	}
	taken := make(map[types.NamespacedName]bool)
	for _, m := range s.members {
		if m.running {
			taken[m.name] = true
		}
	}
	var due, rest []*member
	for _, m := range s.waiting {
		if m.desired.ending() {
			taken[m.name] = true
		}
	}
	for _, m := range s.waiting {
		if taken[m.name] && !m.desired.ending() {
			rest = append(rest, m)
			continue
		}
		taken[m.name] = true
		m.running = true
		due = append(due, m)
	}
	s.waiting = rest
	return due
}

func (s *Workers) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Update says what is wanted of a pod; one not known before gets a worker.
func (s *Workers) Update(d Desired) {
	s.mu.Lock()
	m, ok := s.members[d.Pod.UID]
	if !ok {
		m = &member{
			uid:    d.Pod.UID,
			name:   types.NamespacedName{Namespace: d.Pod.Namespace, Name: d.Pod.Name},
			worker: newWorker(s.cfg, d),
		}
		s.members[d.Pod.UID] = m
		s.waiting = append(s.waiting, m)
	}
	m.desired = d
	worker := m.worker
	s.mu.Unlock()
	worker.Update(d)
	s.poke()
}

// worker returns the worker of a pod; nil: there is none.
func (s *Workers) worker(uid types.UID) *Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.members[uid]; ok {
		return m.worker
	}
	return nil
}

// Poke says that the runtime may hold something else of the pod, known or not.
func (s *Workers) Poke(uid types.UID) {
	if w := s.worker(uid); w != nil {
		w.Poke()
	}
}

// Probed hands over the outcome of a probe.
func (s *Workers) Probed(uid types.UID, p lifecycle.Probed) {
	if w := s.worker(uid); w != nil {
		w.Probed(p)
	}
}

// SourcesChanged says that what failed actions of the pod lacked may be there.
func (s *Workers) SourcesChanged(uid types.UID) {
	if w := s.worker(uid); w != nil {
		w.SourcesChanged()
	}
}

// Known lists the pods that have a worker, running or waiting for its name. All
// of a pod's traces on the node belong to its worker until it is forgotten.
func (s *Workers) Known() map[types.UID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make(map[types.UID]bool, len(s.members))
	for uid := range s.members {
		known[uid] = true
	}
	return known
}

// Waiting lists the pods that wait for an older one of their name.
func (s *Workers) Waiting() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var uids []types.UID
	for _, m := range s.waiting {
		uids = append(uids, m.uid)
	}
	return uids
}

// Wait returns when no pod is known any more, or with an error when ctx ends.
func (s *Workers) Wait(ctx context.Context) error {
	for {
		s.mu.Lock()
		left, changed := len(s.members), s.changed
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for %d pods to end: %w", left, context.Cause(ctx))
		case <-changed:
		}
	}
}
