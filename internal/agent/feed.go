package agent

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// UpdateKind says what an Update tells.
type UpdateKind string

// The kinds of updates.
const (
	StatusUpdate   UpdateKind = "status"
	EventUpdate    UpdateKind = "event"
	ProgressUpdate UpdateKind = "progress"
	GoneUpdate     UpdateKind = "gone" // nothing of the pod is left
)

// Ref names a pod.
type Ref struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// Update is one change of one pod. It is read-only.
type Update struct {
	Time     time.Time         `json:"time"`
	Pod      Ref               `json:"pod"`
	Kind     UpdateKind        `json:"kind"`
	Status   *corev1.PodStatus `json:"status,omitempty"`
	Event    *Event            `json:"event,omitempty"`
	Progress *Progress         `json:"progress,omitempty"`
	// Deleted says, in updates of statuses and of pods that are gone, that the end
	// of the pod was asked for, and how.
	Deleted Deleted `json:"deleted,omitempty"`
}

// Deleted says how the end of a pod was asked for.
type Deleted string

// How the end of a pod was asked for. Empty: it was not.
const (
	Removed  Deleted = "removed"  // by name
	Replaced Deleted = "replaced" // by a new pod of its name
)

// Event is something that happened to a pod, as in the API.
type Event struct {
	Type      string `json:"type"` // Normal or Warning
	Reason    string `json:"reason"`
	Container string `json:"container,omitempty"`
	Message   string `json:"message"`
}

// Progress is how far the pull of an image is, in bytes; Total is 0 while it is
// not known.
type Progress struct {
	Container string `json:"container"`
	Image     string `json:"image"`
	Done      int64  `json:"done"`
	Total     int64  `json:"total"`
}

// maxQueue is how many updates a slow reader may be behind before it loses
// events; it never loses the newest status of a pod.
const maxQueue = 8192

// feed tells readers what happens. Writers never wait for a reader.
type feed struct {
	now  func() time.Time
	past *pastEvents

	mu      sync.Mutex
	latest  map[types.UID]Update // newest status of each pod
	readers map[*reader]bool
}

type reader struct {
	wake  chan struct{}
	queue []Update // guarded by feed.mu
	lost  int      // events that did not fit; guarded by feed.mu
}

func newFeed() *feed {
	return &feed{now: time.Now, past: newPastEvents(), latest: make(map[types.UID]Update), readers: make(map[*reader]bool)}
}

// put tells all readers.
func (f *feed) put(u Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u.Time = f.now()
	switch u.Kind {
	case StatusUpdate:
		f.latest[u.Pod.UID] = u
	case GoneUpdate:
		delete(f.latest, u.Pod.UID)
		f.past.forget(u.Pod.UID)
	case EventUpdate:
		f.past.add(u.Pod.UID, *u.Event, u.Time)
	case ProgressUpdate:
	}
	for r := range f.readers {
		r.add(u)
	}
}

// tellDeleted tells the newest status of a pod once more, with how its end was
// asked for, unless that was told.
func (f *feed) tellDeleted(uid types.UID, how Deleted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, ok := f.latest[uid]
	if !ok || u.Deleted != "" {
		return // without a status yet, the first one tells it
	}
	u.Time, u.Deleted = f.now(), how
	f.latest[uid] = u
	for r := range f.readers {
		r.add(u)
	}
}

func (r *reader) add(u Update) {
	if u.Kind == ProgressUpdate && len(r.queue) > 0 {
		if last := &r.queue[len(r.queue)-1]; last.Kind == ProgressUpdate && last.Pod.UID == u.Pod.UID && last.Progress.Container == u.Progress.Container {
			*last = u
			return
		}
	}
	if len(r.queue) >= maxQueue {
		r.shorten()
	}
	r.queue = append(r.queue, u)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// shorten drops what a reader that is far behind can do without: events, and
// statuses that newer ones replace.
func (r *reader) shorten() {
	newest := make(map[types.UID]int)
	for i, u := range r.queue {
		if u.Kind == StatusUpdate {
			newest[u.Pod.UID] = i
		}
	}
	kept := r.queue[:0]
	for i, u := range r.queue {
		if u.Kind == GoneUpdate || u.Kind == StatusUpdate && newest[u.Pod.UID] == i {
			kept = append(kept, u)
		} else {
			r.lost++
		}
	}
	r.queue = kept
}

// read calls f with the newest status of each pod, then with each update, until
// ctx ends or f fails. lost counts what a slow reader did not get.
func (f *feed) read(ctx context.Context, fn func(u Update, lost int) error) error {
	r := &reader{wake: make(chan struct{}, 1)}
	f.mu.Lock()
	for _, u := range f.latest {
		r.queue = append(r.queue, u)
	}
	f.readers[r] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.readers, r)
		f.mu.Unlock()
	}()
	for {
		f.mu.Lock()
		batch, lost := r.queue, r.lost
		r.queue, r.lost = nil, 0
		f.mu.Unlock()
		for _, u := range batch {
			if err := fn(u, lost); err != nil {
				return err
			}
			lost = 0
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
		}
	}
}

// status is the newest status of a pod; nil: none was reported yet.
func (f *feed) status(uid types.UID) *corev1.PodStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest[uid].Status
}

func refOf(pod *corev1.Pod) Ref { return Ref{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID} }

// Record makes the feed a recorder of events.
func (f *feed) Record(ref corev1.ObjectReference, eventType, reason, message string) {
	f.put(Update{
		Kind:  EventUpdate,
		Pod:   Ref{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID},
		Event: &Event{Type: eventType, Reason: reason, Message: message, Container: containerIn(ref.FieldPath)},
	})
}

// containerIn reads the name out of a field path: spec.containers{app}.
func containerIn(path string) string {
	open, end := -1, -1
	for i, c := range path {
		switch c {
		case '{':
			open = i
		case '}':
			end = i
		}
	}
	if open < 0 || end < open {
		return ""
	}
	return path[open+1 : end]
}
