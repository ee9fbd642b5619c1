package podworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berth-run/berth/internal/format"
	"github.com/berth-run/berth/internal/lifecycle"
)

const (
	// maxRounds bounds the decisions of one look. Each round but the last
	// starts something, so that only a core that starts without end reaches it.
	maxRounds = 20
	// A clock that moved by less than this against the monotonic clock was not
	// set but slewed.
	clockStep = time.Second
	// An observation that failed is tried again after this, doubling.
	minRetry = 100 * time.Millisecond
	maxRetry = 5 * time.Second
)

// Worker runs one pod. Its methods may be called from any goroutine, also
// before and after Run; they never block.
type Worker struct {
	cfg Config
	log *slog.Logger
	box *inbox

	// What follows belongs to the goroutine in Run.

	desired  Desired
	history  lifecycle.History
	saved    lifecycle.History // what was last handed to Records
	observed lifecycle.Observed
	unseen   bool          // the runtime must be observed before the next decision
	retry    time.Duration // wait after the last failed observation; 0: it succeeded
	retryAt  time.Time     // when to observe again, on the monotonic clock
	wall     time.Time     // the wall clock at the last look
	mono     time.Time     // the monotonic clock then
	// working holds what was started and has not ended, cancelled or not.
	working  map[lifecycle.Key]*work
	started  sync.WaitGroup // the goroutines of working
	probes   []lifecycle.Probe
	decision lifecycle.Decision
	shown    *corev1.Pod // the pod as last handed to Status; nil: never
	told     told
}

// New returns the worker of one pod. It does nothing before Run.
func New(cfg Config, d Desired) (*Worker, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return newWorker(cfg, d), nil
}

func newWorker(cfg Config, d Desired) *Worker {
	return &Worker{
		cfg:     cfg,
		log:     cfg.Log.With("pod", format.Pod(d.Pod), "uid", d.Pod.UID),
		box:     newInbox(),
		desired: d,
		unseen:  true,
		working: make(map[lifecycle.Key]*work),
	}
}

// Update says what is wanted of the pod now.
func (w *Worker) Update(d Desired) { w.box.put(func(m *mail) { m.desired = &d }) }

// Poke says that the runtime may hold something else.
func (w *Worker) Poke() { w.box.put(func(m *mail) { m.poked = true }) }

// SourcesChanged says that what a failed action lacked may be there now.
func (w *Worker) SourcesChanged() { w.box.put(func(m *mail) { m.sources = true }) }

// Probed says that a probe turned.
func (w *Worker) Probed(p lifecycle.Probed) {
	w.box.put(func(m *mail) { m.probed = append(m.probed, p) })
}

// Run runs the pod until nothing of it is left and nothing will come, or until
// ctx ends: it then detaches and leaves containers as they are. It returns an
// error where the pod's history cannot be read.
func (w *Worker) Run(ctx context.Context) error {
	h, err := w.cfg.Records.Load(w.desired.Pod.UID)
	if errors.Is(err, ErrTorn) {
		// What the runtime holds tells most of it.
		w.log.Error("the pod's history is lost, it goes on with what is seen", "err", err)
	} else if err != nil {
		return fmt.Errorf("cannot run pod %s: %w", format.Pod(w.desired.Pod), err)
	}
	w.history, w.saved = h, h
	w.wall, w.mono = w.cfg.Wall().Round(0), time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			w.detach(ctx)
			return nil
		case <-w.box.wake:
		case <-timer.C:
		}
		w.fold(ctx, w.box.take())
		w.look(ctx)
		if ctx.Err() == nil && w.decision.Finished && len(w.working) == 0 {
			w.finish()
			return nil
		}
		if next, ok := w.next(); ok {
			timer.Reset(next)
		} else {
			timer.Stop()
		}
	}
}

// now is the time of a decision: the wall clock without monotonic reading.
func (w *Worker) now() time.Time { return w.cfg.Wall().Round(0) }

// next says how long to wait when nothing happens; false: for ever.
func (w *Worker) next() (time.Duration, bool) {
	if w.unseen {
		return time.Until(w.retryAt), true
	}
	if w.decision.LookAgain.IsZero() {
		return 0, false
	}
	return w.decision.LookAgain.Sub(w.now()), true
}

// fold takes in what happened.
func (w *Worker) fold(ctx context.Context, m mail) {
	w.foldClock()
	if m.desired != nil {
		w.desired = *m.desired
	}
	if m.poked {
		w.unseen = true
	}
	if m.sources {
		w.history = w.history.Apply(lifecycle.SourcesChanged{})
	}
	for _, p := range m.probed {
		w.history = w.history.Apply(p)
	}
	for _, e := range m.ended {
		w.foldEnd(ctx, e)
		w.unseen = true
	}
}

// foldClock notices that the wall clock was set.
func (w *Worker) foldClock() {
	wall, mono := w.cfg.Wall().Round(0), time.Now()
	by := wall.Sub(w.wall) - mono.Sub(w.mono)
	w.wall, w.mono = wall, mono
	if by.Abs() < clockStep {
		return
	}
	w.log.Warn("the clock was set", "by", by)
	w.history = w.history.Apply(lifecycle.ClockStepped{By: by})
	// What was observed bears the old clock's times.
	w.unseen = true
}

// look observes where needed, decides, and makes what was decided hold.
func (w *Worker) look(ctx context.Context) {
	defer func() { _ = w.save() }() // an error is logged; the next look saves again
	if w.unseen && !w.observe(ctx) {
		if !w.observed.At.IsZero() || w.shown != nil {
			return // what is known is too old to act on
		}
		// Nothing was ever seen: the core then only says what was last reported.
	}
	for round := range maxRounds {
		now := w.now()
		d, h := lifecycle.Step(lifecycle.Input{
			Pod:      w.desired.Pod,
			Stop:     w.desired.Stop,
			Reject:   w.desired.Reject,
			Observed: w.observed,
			UnderWay: w.underWay(),
			History:  w.history,
			Facts:    w.cfg.Facts(w.desired.Pod),
			Now:      now,
		})
		w.history = h
		again := w.reconcile(ctx, d.Work)
		if !again || round == maxRounds-1 {
			if again {
				w.log.Error("decisions keep starting actions, this pod waits a second", "work", len(d.Work))
				d.LookAgain = now.Add(time.Second)
			}
			w.publish(d)
			break
		}
	}
}

// observe asks the runtime. After an error it is to be asked again at retryAt.
func (w *Worker) observe(ctx context.Context) bool {
	asked, cancel := context.WithTimeout(ctx, w.cfg.ObserveTimeout)
	defer cancel()
	observed, err := w.cfg.Runtime.Observe(asked, w.desired.Pod)
	if err != nil {
		if ctx.Err() == nil && w.retry == 0 {
			w.log.Warn("cannot observe the pod, it is tried again", "err", err)
		}
		w.retry = min(max(2*w.retry, minRetry), maxRetry)
		w.retryAt = time.Now().Add(w.retry)
		return false
	}
	if w.retry != 0 {
		w.log.Info("the pod can be observed again")
	}
	w.retry, w.unseen, w.observed = 0, false, observed
	w.history = w.history.Apply(lifecycle.Looked{Observed: observed, UnderWay: w.underWay()})
	return true
}

// publish hands the decision to probes, status and record.
func (w *Worker) publish(d lifecycle.Decision) {
	pod := w.desired.Pod
	if !reflect.DeepEqual(w.probes, d.Probes) {
		w.probes = d.Probes
		w.cfg.Probes.Set(pod, d.Probes)
	}
	w.told.decided(w.recorder(), pod, d.Reasons)
	if w.shown != pod || !equality.Semantic.DeepEqual(w.decision.Status, d.Status) {
		w.cfg.Status.Set(pod, d.Status)
	}
	if w.shown == nil || !reflect.DeepEqual(w.decision, d) {
		w.cfg.Decided(pod, d)
	}
	w.shown, w.decision = pod, d
}

// save hands the history to Records if it has changed.
func (w *Worker) save() error {
	if reflect.DeepEqual(w.saved, w.history) {
		return nil
	}
	if err := w.cfg.Records.Save(w.desired.Pod.UID, w.history); err != nil {
		w.log.Error("cannot keep the history of the pod", "err", err)
		return err
	}
	w.saved = w.history
	return nil
}

// finish is the end of a pod of which nothing is left; it was deleted.
func (w *Worker) finish() {
	pod := w.desired.Pod
	if len(w.probes) > 0 {
		w.cfg.Probes.Set(pod, nil)
	}
	w.cfg.Records.Delete(pod.UID)
	w.cfg.Status.Finished(pod)
	w.log.Info("pod finished")
}

// detach abandons what is under way and keeps what is known.
func (w *Worker) detach(ctx context.Context) {
	for _, wk := range w.working {
		wk.stop()
	}
	w.started.Wait()
	w.fold(ctx, w.box.take())
	w.cfg.Probes.Set(w.desired.Pod, nil)
	_ = w.save() // an error is logged, and what was kept before stands
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxRetry)
	defer cancel()
	if err := w.cfg.Records.Sync(last); err != nil {
		w.log.Error("cannot keep the history of the pod", "err", err)
	}
}
