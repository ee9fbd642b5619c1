package cri

import (
	"context"
	"errors"
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Nobody reads, a lot happens: the last event of each object is kept, in order,
// and nobody waits.
func TestSlowReaderKeepsTheLastEventOfEach(t *testing.T) {
	b := newBroadcaster()
	sub := b.subscribe()
	defer b.unsubscribe(sub)
	const objects, rounds = 10, 1000
	for round := range rounds {
		for i := range objects {
			kind := runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
			if round == rounds-1 {
				kind = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
			}
			b.emit(event{kind: kind, id: fmt.Sprint(i)})
		}
	}
	queue, err := b.take(t.Context(), sub)
	if err != nil || len(queue) > queueLimit {
		t.Fatalf("%d events, %v", len(queue), err)
	}
	for i, e := range queue[len(queue)-objects:] {
		if e.id != fmt.Sprint(i) || e.kind != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			t.Errorf("event %d is %v", i, e)
		}
	}
}

func TestReaderGetsEventsInOrderUntilItLeaves(t *testing.T) {
	b := newBroadcaster()
	sub := b.subscribe()
	go func() {
		for i := range 100 {
			b.emit(event{id: fmt.Sprint(i)})
		}
	}()
	var got []event
	for len(got) < 100 {
		queue, err := b.take(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, queue...)
	}
	for i, e := range got {
		if e.id != fmt.Sprint(i) {
			t.Fatalf("event %d is of %s", i, e.id)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.take(ctx, sub); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	b.unsubscribe(sub)
	b.emit(event{id: "late"})
	if len(b.subs) != 0 || len(sub.queue) != 0 {
		t.Error("a reader that has left still gets events")
	}
}

func TestBackgroundWaits(t *testing.T) {
	var b background
	b.Wait() // nothing to wait for
	release := make(chan struct{})
	done := 0
	b.Go(func() { <-release; done++ })
	waited := make(chan struct{})
	go func() { b.Wait(); close(waited) }()
	select {
	case <-waited:
		t.Fatal("did not wait")
	default:
	}
	close(release)
	<-waited
	if done != 1 {
		t.Error("did not wait to the end")
	}
}
