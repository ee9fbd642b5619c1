package server

import (
	"context"
	"sync"

	"github.com/berth-run/berth/internal/shim"
)

// queueMax is how many events may wait for a subscriber. One that is further
// behind is cut off; when it comes back, exits are replayed to it.
const queueMax = 10_000

// hub passes events to subscribers. The zero value is ready.
type hub struct {
	mu   sync.Mutex
	subs map[*subscriber]bool
}

type subscriber struct {
	ready chan struct{} // holds a token while queue is not empty, or lost is set
	// Under the hub's mutex:
	queue []shim.Event
	lost  bool
}

// subscribe must be followed by unsubscribe.
func (h *hub) subscribe() *subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = make(map[*subscriber]bool)
	}
	s := &subscriber{ready: make(chan struct{}, 1)}
	h.subs[s] = true
	return s
}

func (h *hub) unsubscribe(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
}

func (h *hub) publish(e shim.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		if len(s.queue) >= queueMax {
			s.lost, s.queue = true, nil
			delete(h.subs, s)
		} else {
			s.queue = append(s.queue, e)
		}
		select {
		case s.ready <- struct{}{}:
		default:
		}
	}
}

// next waits for events. It returns false when the subscriber was cut off or
// ctx has ended.
func (h *hub) next(ctx context.Context, s *subscriber) ([]shim.Event, bool) {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	q := s.queue
	s.queue = nil
	return q, !s.lost
}
