package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/db"
)

const (
	// maxEventsOfPod is how many different events of a pod are kept. One reason of
	// a container has at most maxEventsOfReason of them, so that what says something
	// new each time pushes out nothing but itself.
	maxEventsOfPod    = 48
	maxEventsOfReason = 8
	// maxEvents is how many are kept of all pods.
	maxEvents = 8192
	// maxEventMessage is how much of a message is kept, in bytes.
	maxEventMessage = 2048
)

// PastEvent is an event that happened, once or more often in the same words.
type PastEvent struct {
	Event
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// pastEvents keeps what happened to pods until nothing is left of them. It is safe
// for concurrent use.
type pastEvents struct {
	// news gets something when there is an event worth to be written down soon:
	// not for one that is there already, which may come every second.
	news chan struct{}

	mu    sync.Mutex
	pods  map[types.UID][]PastEvent // by when they happened last, the oldest first
	total int
	dirty map[types.UID]bool // pods whose events are not on disk as they are here
}

func newPastEvents() *pastEvents {
	return &pastEvents{
		news: make(chan struct{}, 1), pods: make(map[types.UID][]PastEvent), dirty: make(map[types.UID]bool),
	}
}

// add notes that an event happened to a pod.
func (p *pastEvents) add(uid types.UID, e Event, at time.Time) {
	if len(e.Message) > maxEventMessage {
		e.Message = validPrefix(e.Message, maxEventMessage) + "…"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dirty[uid] = true
	list := p.pods[uid]
	now := PastEvent{Event: e, Count: 1, First: at, Last: at}
	if i := slices.IndexFunc(list, func(old PastEvent) bool { return old.Event == e }); i >= 0 {
		now.Count, now.First = list[i].Count+1, list[i].First
		p.pods[uid] = append(slices.Delete(list, i, i+1), now)
		return
	}
	same := func(old PastEvent) bool { return old.Reason == e.Reason && old.Container == e.Container }
	drop := -1
	if count(list, same) >= maxEventsOfReason {
		drop = slices.IndexFunc(list, same)
	} else if len(list) >= maxEventsOfPod {
		drop = 0
	}
	if drop >= 0 {
		list = slices.Delete(list, drop, drop+1)
		p.total--
	}
	p.pods[uid] = append(list, now)
	if p.total++; p.total > maxEvents {
		p.dropOldest()
	}
	select {
	case p.news <- struct{}{}:
	default:
	}
}

func count(list []PastEvent, is func(PastEvent) bool) (n int) {
	for _, e := range list {
		if is(e) {
			n++
		}
	}
	return n
}

// validPrefix is at most so many bytes of a text, without half a character.
func validPrefix(text string, size int) string {
	for size > 0 && text[size]&0xc0 == 0x80 {
		size--
	}
	return text[:size]
}

// dropOldest forgets the event that happened longest ago. p.mu is held.
func (p *pastEvents) dropOldest() {
	var of types.UID
	for uid, list := range p.pods {
		if of == "" || list[0].Last.Before(p.pods[of][0].Last) {
			of = uid
		}
	}
	p.total--
	p.dirty[of] = true
	if p.pods[of] = p.pods[of][1:]; len(p.pods[of]) == 0 {
		delete(p.pods, of)
	}
}

// forget drops the events of a pod of which nothing is left.
func (p *pastEvents) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total -= len(p.pods[uid])
	delete(p.pods, uid)
	p.dirty[uid] = true
}

// of are the events of a pod, by when they happened last, the oldest first.
func (p *pastEvents) of(uid types.UID) []PastEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]PastEvent{}, p.pods[uid]...)
}

const (
	eventsBucket = "events"
	// eventsDelay is how long new events may stay in memory only.
	eventsDelay = 2 * time.Second
)

// load reads the events that a former agent wrote down of pods that are known.
func (p *pastEvents) load(d *db.DB, known func(types.UID) bool) error {
	all, err := d.All(eventsBucket)
	if err != nil {
		return fmt.Errorf("cannot read the events of earlier runs: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		var list []PastEvent
		if err := json.Unmarshal(all[uid], &list); err != nil || len(list) == 0 || !known(types.UID(uid)) {
			d.Delete(eventsBucket, uid)
			continue
		}
		slices.SortStableFunc(list, func(a, b PastEvent) int { return cmp.Compare(a.Last.UnixNano(), b.Last.UnixNano()) })
		p.pods[types.UID(uid)] = list
		for p.total += len(list); p.total > maxEvents; {
			p.dropOldest()
		}
	}
	return nil
}

// save writes down what is not on disk.
func (p *pastEvents) save(d *db.DB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.dirty {
		list := p.pods[uid]
		if len(list) == 0 {
			d.Delete(eventsBucket, string(uid))
			continue
		}
		data, err := json.Marshal(list)
		if err != nil {
			panic(fmt.Sprintf("agent: events cannot be encoded: %v", err))
		}
		d.Put(eventsBucket, string(uid), data)
	}
	clear(p.dirty)
}

// keepEvents writes events down a while after they happened. What is left when
// ctx ends is for Run to save.
func (a *Agent) keepEvents(ctx context.Context) error {
	for {
		select {
		case <-a.feed.past.news:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(eventsDelay):
			a.feed.past.save(a.db)
		case <-ctx.Done():
			return nil
		}
	}
}
