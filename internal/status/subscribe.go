package status

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// backlog is how many updates wait for a slow subscriber before those of one pod
// are made one.
const backlog = 1024

// subscriber is one reader of updates. Manager.mu guards its list.
type subscriber struct {
	pending []Update
	limit   int // at which pending is cleaned up
	wake    chan struct{}
}

// Subscribe returns all updates from now on, after the newest status of each pod
// there is, ordered by name. The channel is closed after ctx has ended. A reader
// that is slow never holds up others.
func (m *Manager) Subscribe(ctx context.Context) <-chan Update {
	s := &subscriber{limit: backlog, wake: make(chan struct{}, 1)}
	m.mu.Lock()
	for _, e := range m.pods {
		if e.latest.Status != nil && !e.finished {
			s.pending = append(s.pending, e.latest)
		}
	}
	slices.SortFunc(s.pending, func(a, b Update) int {
		if c := strings.Compare(a.Ref.Namespace, b.Ref.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Ref.Name, b.Ref.Name)
	})
	m.subs[s] = true
	m.mu.Unlock()

	out := make(chan Update)
	go func() {
		defer close(out)
		defer m.unsubscribe(s)
		for {
			u, ok := m.pull(s)
			if !ok {
				select {
				case <-s.wake:
					continue
				case <-ctx.Done():
					return
				}
			}
			select {
			case out <- u:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (m *Manager) unsubscribe(s *subscriber) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.subs, s)
}

// pull takes the oldest update that waits for s.
func (m *Manager) pull(s *subscriber) (Update, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(s.pending) == 0 {
		s.pending = nil
		return Update{}, false
	}
	u := s.pending[0]
	s.pending[0] = Update{}
	s.pending = s.pending[1:]
	return u, true
}

// tell hands an update to all subscribers. m.mu is held.
func (m *Manager) tell(u Update) {
	for s := range m.subs {
		if len(s.pending) >= s.limit {
			s.pending = newest(s.pending)
			s.limit = max(backlog, 2*len(s.pending))
		}
		s.pending = append(s.pending, u)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// newest keeps the last update of each pod, in order, and counts what it left
// out.
func newest(all []Update) (kept []Update) {
	last := make(map[types.UID]int, len(all))
	skipped := make(map[types.UID]int)
	for i, u := range all {
		if before, ok := last[u.Ref.UID]; ok {
			skipped[u.Ref.UID] += 1 + all[before].Skipped
		}
		last[u.Ref.UID] = i
	}
	for i, u := range all {
		if last[u.Ref.UID] == i {
			u.Skipped += skipped[u.Ref.UID]
			kept = append(kept, u)
		}
	}
	return kept
}
