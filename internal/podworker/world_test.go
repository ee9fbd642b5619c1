package podworker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/hooks"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime/podruntimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memRecords keeps histories in memory, as JSON, the way a disk does: what was
// saved but not synced is lost when the agent dies within 50 ms.
type memRecords struct {
	faults  *fault.Injector
	refuses atomic.Bool // takes no history

	mu      sync.Mutex
	disk    map[types.UID][]byte
	pending map[types.UID]pendingRecord
	dead    bool // the process that wrote is dead: nothing more is kept
}

type pendingRecord struct {
	data []byte // nil: deleted
	at   time.Time
}

func newMemRecords(faults *fault.Injector) *memRecords {
	return &memRecords{faults: faults, disk: map[types.UID][]byte{}, pending: map[types.UID]pendingRecord{}}
}

func (r *memRecords) full() bool { return r.faults.Active(time.Now(), fault.DiskFull) }

func (r *memRecords) Load(uid types.UID) (lifecycle.History, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var h lifecycle.History
	data, ok := r.disk[uid]
	if p, newer := r.pending[uid]; newer {
		data, ok = p.data, p.data != nil
	}
	if !ok {
		return h, nil
	}
	return h, json.Unmarshal(data, &h)
}

func (r *memRecords) put(uid types.UID, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.dead {
		r.flush(50 * time.Millisecond)
		r.pending[uid] = pendingRecord{data, time.Now()}
	}
}

// flush writes what is older than age. The caller holds mu.
func (r *memRecords) flush(age time.Duration) {
	if r.full() {
		return
	}
	for uid, p := range r.pending {
		if time.Since(p.at) < age {
			continue
		}
		if p.data == nil {
			delete(r.disk, uid)
		} else {
			r.disk[uid] = p.data
		}
		delete(r.pending, uid)
	}
}

func (r *memRecords) Save(uid types.UID, h lifecycle.History) error {
	if r.refuses.Load() {
		return syscall.EINVAL
	}
	data, err := json.Marshal(h)
	if err == nil {
		r.put(uid, data)
	}
	return err
}

func (r *memRecords) Delete(uid types.UID) { r.put(uid, nil) }

func (r *memRecords) Sync(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full() {
		return syscall.ENOSPC
	}
	if !r.dead {
		r.flush(0)
	}
	return nil
}

// die is kill -9: what has not reached the disk is lost. It returns what the
// next process finds.
func (r *memRecords) die() *memRecords {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush(50 * time.Millisecond)
	r.dead = true
	next := newMemRecords(r.faults)
	for uid, data := range r.disk {
		next.disk[uid] = data
	}
	return next
}

// world is a node in a bubble: a runtime in memory, the workers, and sinks that
// remember. It is safe for concurrent use.
type world struct {
	t      *testing.T
	rt     *podruntimetest.Fake
	faults *fault.Injector
	hook   func(ctx context.Context, h hooks.Hook) error

	mu       sync.Mutex
	records  *memRecords
	workers  *Workers
	wanted   map[types.UID]Desired
	statuses map[types.UID][]corev1.PodStatus
	finished map[types.UID]bool
	probes   map[types.UID][]lifecycle.Probe
	events   []string
	stop     func()

	offset atomic.Int64 // how far the wall clock was set, in nanoseconds
	// busy lets a look at the runtime last until the agent ends, and a bit longer.
	busy atomic.Bool
}

func newWorld(t *testing.T, faults string) *world {
	t.Helper()
	list, err := fault.ParseAll(faults)
	if err != nil {
		t.Fatal(err)
	}
	in := fault.NewInjector(time.Now(), list)
	w := &world{
		t: t, rt: podruntimetest.NewFake(in), faults: in, records: newMemRecords(in),
		hook:     func(context.Context, hooks.Hook) error { return nil },
		wanted:   map[types.UID]Desired{},
		statuses: map[types.UID][]corev1.PodStatus{}, finished: map[types.UID]bool{}, probes: map[types.UID][]lifecycle.Probe{},
	}
	w.rt.Wall = w.wall
	w.begin()
	t.Cleanup(func() {
		w.stop()
		for _, v := range w.rt.Violations() {
			t.Error(v)
		}
	})
	return w
}

// wall is the machine's wall clock.
func (w *world) wall() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }

// begin starts an agent on what the node holds.
func (w *world) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	cfg := Config{
		Runtime: worldRuntime{w.rt, w}, Records: w.records, Hooks: w, Status: worldStatus{w}, Probes: worldProbes{w}, Recorder: worldEvents{w},
		Facts: func(*corev1.Pod) lifecycle.Facts {
			return lifecycle.Facts{RuntimeName: "fake", HostIPs: []string{"192.0.2.1"}}
		},
		Wall: w.wall,
	}
	if os.Getenv("BERTH_TEST_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	workers, err := NewWorkers(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.workers = workers
	var ending, others []Desired
	for _, d := range w.wanted {
		if d.ending() {
			ending = append(ending, d)
		} else {
			others = append(others, d)
		}
	}
	for _, d := range append(ending, others...) {
		workers.Update(d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := workers.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	running.Go(func() {
		if err := w.rt.Events(ctx, workers.Poke); err != nil {
			w.t.Error(err)
		}
	})
	w.stop = func() {
		cancel()
		running.Wait()
	}
}

// restart stops the agent in good order, or kills it, and begins another.
func (w *world) restart(kill bool) {
	w.mu.Lock()
	if kill {
		w.records = w.records.die()
	}
	stop := w.stop
	w.mu.Unlock()
	stop()
	w.begin()
}

func (w *world) set(d Desired) {
	w.mu.Lock()
	w.wanted[d.Pod.UID] = d
	workers := w.workers
	w.mu.Unlock()
	workers.Update(d)
}

func (w *world) delete(pod *corev1.Pod) {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = ptr.To(metav1.Now())
	pod.DeletionGracePeriodSeconds = pod.Spec.TerminationGracePeriodSeconds
	w.set(Desired{Pod: pod})
}

func (w *world) status(uid types.UID) corev1.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.statuses[uid]
	if len(all) == 0 {
		return corev1.PodStatus{}
	}
	return all[len(all)-1]
}

func (w *world) isFinished(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished[uid]
}

func (w *world) eventList() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// waitFor waits in virtual time until ok, and fails after limit.
func (w *world) waitFor(what string, limit time.Duration, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not %s after %s; actions:\n%q\nstatuses: %+v", what, limit, w.rt.Log(), w.statuses)
		}
	}
}

func (w *world) ready(uid types.UID) bool {
	for _, c := range w.status(uid).Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

type worldRuntime struct {
	*podruntimetest.Fake
	w *world
}

func (r worldRuntime) Observe(ctx context.Context, pod *corev1.Pod) (lifecycle.Observed, error) {
	if r.w.busy.Load() {
		<-ctx.Done()
		time.Sleep(time.Second)
		return lifecycle.Observed{}, ctx.Err()
	}
	return r.Fake.Observe(ctx, pod)
}

type worldStatus struct{ w *world }

func (s worldStatus) Set(pod *corev1.Pod, status corev1.PodStatus) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.statuses[pod.UID] = append(s.w.statuses[pod.UID], status)
}

func (s worldStatus) Finished(pod *corev1.Pod) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.finished[pod.UID] = true
	if pod.DeletionTimestamp != nil {
		delete(s.w.wanted, pod.UID)
	}
}

type worldProbes struct{ w *world }

func (p worldProbes) Set(pod *corev1.Pod, probes []lifecycle.Probe) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.probes[pod.UID] = probes
}

type worldEvents struct{ w *world }

func (e worldEvents) Record(ref corev1.ObjectReference, eventType, reason, message string) {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	e.w.events = append(e.w.events, fmt.Sprintf("%s %s %s: %s", eventType, reason, ref.FieldPath, message))
}

func (w *world) Run(ctx context.Context, h hooks.Hook) error { return w.hook(ctx, h) }

var nextUID int

// podOf makes a pod with containers of these names; "init:x" and "sidecar:x"
// are init containers.
func podOf(name string, containers ...string) *corev1.Pod {
	nextUID++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(fmt.Sprintf("%s-%d", name, nextUID)), Generation: 1},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: ptr.To[int64](30),
		},
	}
	for _, c := range containers {
		kind, cname := "", c
		for _, prefix := range []string{"init:", "sidecar:"} {
			if len(c) > len(prefix) && c[:len(prefix)] == prefix {
				kind, cname = prefix, c[len(prefix):]
			}
		}
		spec := corev1.Container{Name: cname, Image: "image", ImagePullPolicy: corev1.PullIfNotPresent}
		switch kind {
		case "init:":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, spec)
		case "sidecar:":
			spec.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, spec)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, spec)
		}
	}
	return pod
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, faults string, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, faults)) })
}
