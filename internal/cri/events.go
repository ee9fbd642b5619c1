package cri

import (
	"context"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// queueLimit is the number of events kept for one subscriber before older ones
// of the same object are dropped.
const queueLimit = 1024

// event is something that happened to a container or sandbox. The statuses that
// go with it are read when it is delivered, so they are never older than it.
type event struct {
	kind          runtimeapi.ContainerEventType
	id, sandboxID string
	at            time.Time
}

// broadcaster hands events to subscribers. Nobody waits for a slow one.
type broadcaster struct {
	mu   sync.Mutex // guards subs and every subscription's queue
	subs map[*subscription]struct{}
}

type subscription struct {
	queue []event
	poke  chan struct{} // capacity 1: there is something in queue
}

func newBroadcaster() *broadcaster {
	return &broadcaster{subs: make(map[*subscription]struct{})}
}

func (b *broadcaster) subscribe() *subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	sub := &subscription{poke: make(chan struct{}, 1)}
	b.subs[sub] = struct{}{}
	return sub
}

func (b *broadcaster) unsubscribe(sub *subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, sub)
}

// emit never blocks. A queue that is full keeps the last event of each object,
// which is all a reader needs to look again: it grows only with the number of
// objects.
func (b *broadcaster) emit(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for sub := range b.subs {
		sub.queue = append(sub.queue, e)
		if len(sub.queue) > queueLimit {
			sub.queue = newest(sub.queue)
		}
		select {
		case sub.poke <- struct{}{}:
		default:
		}
	}
}

// newest keeps the last event of each object, in order.
func newest(queue []event) []event {
	last := make(map[string]int, len(queue))
	for i, e := range queue {
		last[e.id] = i
	}
	kept := make([]event, 0, len(last))
	for i, e := range queue {
		if last[e.id] == i {
			kept = append(kept, e)
		}
	}
	return kept
}

// take waits for events and returns all there are.
func (b *broadcaster) take(ctx context.Context, sub *subscription) ([]event, error) {
	for {
		b.mu.Lock()
		queue := sub.queue
		sub.queue = nil
		b.mu.Unlock()
		if len(queue) > 0 {
			return queue, nil
		}
		select {
		case <-sub.poke:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Service) emit(kind runtimeapi.ContainerEventType, id, sandboxID string) {
	s.events.emit(event{kind: kind, id: id, sandboxID: sandboxID, at: time.Now()})
}

// GetContainerEvents sends what happens to out until ctx ends, each with the
// state its sandbox and containers have at delivery. A reader that falls far
// behind misses intermediate events of an object, never the last one.
func (s *Service) GetContainerEvents(ctx context.Context, out chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	sub := s.events.subscribe()
	defer s.events.unsubscribe(sub)
	if established != nil {
		established(nil)
	}
	for {
		queue, err := s.events.take(ctx, sub)
		if err != nil {
			return err
		}
		for _, e := range queue {
			select {
			case out <- s.eventResponse(e):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func (s *Service) eventResponse(e event) *runtimeapi.ContainerEventResponse {
	r := &runtimeapi.ContainerEventResponse{
		ContainerId:        e.id,
		ContainerEventType: e.kind,
		CreatedAt:          e.at.UnixNano(),
	}
	sb, err := s.sandbox(e.sandboxID)
	if err != nil { // gone with its last event
		return r
	}
	r.PodSandboxStatus = sb.status()
	for _, c := range s.containersOf(sb.id) {
		r.ContainersStatuses = append(r.ContainersStatuses, c.status())
	}
	return r
}
