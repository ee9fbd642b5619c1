package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// APIUID is the uid of the object that stands for a pod in the API: the pod's
// own, or that of a static pod's mirror. It is a type of its own because the two
// must not be mixed up: a static pod's uid means nothing to the API.
type APIUID types.UID

// Ref names a pod.
type Ref struct {
	Namespace, Name string
	// UID is the pod's on this node.
	UID types.UID
	// API is the uid of the pod's object in the API; empty: it has none.
	API APIUID
}

// ErrGone is what a sink returns for a pod that it doesn't know any more or
// knows by another uid. Nothing more is sent of the pod to that sink.
var ErrGone = errors.New("pod is gone")

// Sink takes statuses. Its methods are called for one pod at a time, for
// different pods at once. An error means that the call is repeated later, with
// what is newest then; ErrGone means that there is no point.
type Sink interface {
	// Write makes status known as the pod's. A write to a pod with another uid
	// than ref's must have no effect. It must be safe to repeat: an error may
	// come after the effect. status must not be changed.
	Write(ctx context.Context, ref Ref, version uint64, status *corev1.PodStatus) error
	// Remove makes the pod be forgotten. The same rules hold.
	Remove(ctx context.Context, ref Ref) error
}

// SinkConfig says how a sink is served. The zero value of an optional field
// means its default.
type SinkConfig struct {
	Name string // for logs; required
	Sink Sink   // required
	// API says that only pods with an object in the API are sent, and all anew
	// when a pod gets another object there.
	API bool
	// Parallel is how many calls may be under way at once; default 16.
	Parallel int
	// Timeout ends a call; default 30 s.
	Timeout time.Duration
}

// Config says where statuses go. The zero value of an optional field means its
// default.
type Config struct {
	Sinks []SinkConfig
	Log   *slog.Logger // default: discard
}

func (c *Config) complete() error {
	var errs []error
	for i := range c.Sinks {
		s := &c.Sinks[i]
		if s.Name == "" || s.Sink == nil {
			errs = append(errs, fmt.Errorf("status: Config.Sinks[%d] needs a Name and a Sink", i))
		}
		if s.Parallel == 0 {
			s.Parallel = 16
		}
		if s.Timeout == 0 {
			s.Timeout = 30 * time.Second
		}
		if s.Parallel < 1 {
			errs = append(errs, fmt.Errorf("status: Config.Sinks[%d].Parallel is %d, want at least 1", i, s.Parallel))
		}
		if s.Timeout < 0 {
			errs = append(errs, fmt.Errorf("status: Config.Sinks[%d].Timeout is %s, want no less than 0", i, s.Timeout))
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

// Update is one version of a pod's status. What it points to must not be changed.
type Update struct {
	Ref     Ref
	Pod     *corev1.Pod // as desired when the status was decided
	Version uint64
	Status  *corev1.PodStatus
	At      time.Time // when it was set
	// Removed says that nothing of the deleted pod is left; it is the last
	// update of a pod. Its status is the last one known, nil if there was none.
	Removed bool
	// Skipped is how many versions before it this subscriber didn't get.
	Skipped int
}

// Manager keeps statuses and sends them on. It is safe for concurrent use.
type Manager struct {
	cfg   Config
	sinks []*sender

	mu      sync.Mutex // guards all below; never held across I/O
	pods    map[types.UID]*entry
	version uint64 // the newest of all pods
	subs    map[*subscriber]bool
	settled chan struct{} // closed when nothing waits to be sent; see Drain
}

// entry is what is known of one pod.
type entry struct {
	latest   Update
	finished bool // to be removed from the sinks
	dropped  bool // no longer in Manager.pods
	sent     []delivery
}

// delivery is how far one sink is with one pod.
type delivery struct {
	version uint64                 // written
	ready   corev1.ConditionStatus // of that version
	api     APIUID                 // that version was written for
	removed bool                   // or known to be gone
	busy    bool                   // a call is under way
	queued  priority
	tries   int       // failed in a row
	retry   time.Time // not before; zero: at once
}

// New returns a Manager that sends nothing until Run.
func New(cfg Config) (*Manager, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, pods: map[types.UID]*entry{}, subs: map[*subscriber]bool{}}
	for i, s := range cfg.Sinks {
		m.sinks = append(m.sinks, &sender{m: m, index: i, cfg: s, log: cfg.Log.With("sink", s.Name), wake: make(chan struct{}, 1)})
	}
	return m, nil
}

// Run sends to the sinks until ctx ends; it returns nil when all calls have
// ended. What was not sent then stays unsent: see Drain. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, s := range m.sinks {
		running.Go(func() { s.run(ctx) })
	}
	running.Wait()
	return nil
}

// Set takes the newest status of a pod. One that says the same as the last makes
// no new version; neither does one after Finished of a deleted pod. pod and what
// status points to must not change later.
func (m *Manager) Set(pod *corev1.Pod, status corev1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entryOf(pod)
	if e.finished {
		return
	}
	e.latest.Pod = pod
	known := corev1.PodStatus{}
	if e.latest.Status != nil {
		known = *e.latest.Status
	}
	merged, changed := Merge(known, status)
	if !changed && e.latest.Status != nil {
		return
	}
	m.version++
	e.latest.Version, e.latest.Status, e.latest.At = m.version, &merged, time.Now()
	m.tell(e.latest)
	m.send(e)
}

// Finished says that nothing of a pod is left on the node. A deleted pod is then
// removed from the sinks, once they have its last status; of another one, which
// has run to its end, the status is kept.
func (m *Manager) Finished(pod *corev1.Pod) {
	if pod.DeletionTimestamp == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entryOf(pod)
	if e.finished {
		return
	}
	e.finished = true
	m.version++
	last := e.latest
	last.Pod, last.Version, last.Removed, last.At = pod, m.version, true, time.Now()
	m.tell(last)
	m.send(e)
}

// SetAPI says which object stands for a pod in the API; empty: none does now.
// Pods from the API don't need it. It has no effect on a pod that isn't known.
func (m *Manager) SetAPI(uid types.UID, api APIUID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.pods[uid]
	if e == nil || e.latest.Ref.API == api {
		return
	}
	e.latest.Ref.API = api
	for i := range e.sent {
		if m.sinks[i].cfg.API {
			e.sent[i].removed = false
			e.sent[i].tries, e.sent[i].retry = 0, time.Time{}
		}
	}
	m.send(e)
}

// Get returns the newest status of a pod; ok is false if none was set.
func (m *Manager) Get(uid types.UID) (u Update, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.pods[uid]
	if e == nil || e.latest.Status == nil {
		return Update{}, false
	}
	return e.latest, true
}

// Drain waits until the sinks have all that was set, or ctx ends.
func (m *Manager) Drain(ctx context.Context) error {
	m.mu.Lock()
	if m.settled == nil {
		m.settled = make(chan struct{})
	}
	settled := m.settled
	m.checkSettled()
	m.mu.Unlock()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot send all statuses: %w", ctx.Err())
	}
}

// checkSettled ends the waits of Drain if nothing is left to send. m.mu is held.
func (m *Manager) checkSettled() {
	if m.settled == nil {
		return
	}
	for _, e := range m.pods {
		for i := range e.sent {
			if e.sent[i].busy || m.sinks[i].next(e) != nothing {
				return
			}
		}
	}
	close(m.settled)
	m.settled = nil
}

// entryOf finds or makes the entry of a pod. m.mu is held.
func (m *Manager) entryOf(pod *corev1.Pod) *entry {
	e := m.pods[pod.UID]
	if e == nil {
		e = &entry{sent: make([]delivery, len(m.sinks))}
		e.latest.Ref = Ref{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		if !static(pod) {
			e.latest.Ref.API = APIUID(pod.UID)
		}
		m.pods[pod.UID] = e
	}
	return e
}

// sourceAnnotation says where a pod comes from; pods from the API have none or
// "api".
const sourceAnnotation = "kubernetes.io/config.source"

func static(pod *corev1.Pod) bool {
	source, ok := pod.Annotations[sourceAnnotation]
	return ok && source != "api"
}

// send queues a pod for all sinks that lack something of it. m.mu is held.
func (m *Manager) send(e *entry) {
	for _, s := range m.sinks {
		s.queue(e)
	}
	m.dropDone(e)
}

// dropDone forgets a finished pod once all sinks have. m.mu is held.
func (m *Manager) dropDone(e *entry) {
	if !e.finished {
		return
	}
	for i := range e.sent {
		if e.sent[i].busy || m.sinks[i].next(e) != nothing {
			return
		}
	}
	m.drop(e)
}

func (m *Manager) drop(e *entry) {
	e.dropped = true
	delete(m.pods, e.latest.Ref.UID)
	m.checkSettled()
}

func readyStatus(s *corev1.PodStatus) corev1.ConditionStatus {
	if s == nil {
		return ""
	}
	if i := conditionAt(s.Conditions, corev1.PodReady); i >= 0 {
		return s.Conditions[i].Status
	}
	return ""
}
