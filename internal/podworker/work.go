package podworker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/hooks"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime"
)

// work is an action under way. Only the goroutine in Run touches it.
type work struct {
	action   lifecycle.Action
	since    time.Time // monotonic
	cancel   context.CancelFunc
	canceled bool
}

// stop cancels the action. It stays under way until it has ended.
func (wk *work) stop() {
	wk.canceled = true
	wk.cancel()
}

// underWay lists the keys of what is under way, in a fixed order.
func (w *Worker) underWay() []lifecycle.Key {
	if len(w.working) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(w.working), lifecycle.Key.Compare)
}

// reconcile starts the work that is wanted and not under way, and cancels what
// is under way and no longer wanted. It says whether the history or the set of
// what is under way has changed by a start.
func (w *Worker) reconcile(ctx context.Context, want []lifecycle.Action) (again bool) {
	wanted := make(map[lifecycle.Key]bool, len(want))
	var fresh []lifecycle.Action
	for _, a := range want {
		key := a.Key()
		if _, ok := w.working[key]; !ok && !wanted[key] {
			fresh = append(fresh, a)
		}
		wanted[key] = true
	}
	for key, wk := range w.working {
		if !wanted[key] && !wk.canceled {
			w.log.Debug("no longer wanted", "action", key.String())
			wk.stop()
		}
	}
	if len(fresh) == 0 || ctx.Err() != nil {
		return false
	}
	unrecorded := w.record(ctx, fresh)
	if ctx.Err() != nil {
		return false // the next agent finds starts that were begun and made nothing
	}
	for _, a := range fresh {
		if a.Kind == lifecycle.StartContainer && unrecorded != nil {
			w.refuse(a, unrecorded)
			continue
		}
		w.start(ctx, a)
	}
	return true
}

// record folds the begin of the actions into the history, and puts it on disk
// if a container is among them that must not be started twice.
func (w *Worker) record(ctx context.Context, fresh []lifecycle.Action) error {
	now := w.now()
	durable := false
	for _, a := range fresh {
		w.history = w.history.Apply(lifecycle.ActionStarted{Action: a, At: now})
		durable = durable || a.Kind == lifecycle.StartContainer
	}
	if !durable {
		return nil
	}
	if err := w.save(); err != nil {
		return err
	}
	return w.cfg.Records.Sync(ctx)
}

// refuse ends an action that was not started because its begin could not be
// written. The core counts it as a failure and waits before it asks again.
func (w *Worker) refuse(a lifecycle.Action, cause error) {
	w.log.Warn("cannot record the start, the container is not started", "container", a.Container, "err", cause)
	failed := &lifecycle.Failed{
		Reason:  lifecycle.ReasonCreateContainerError,
		Message: fmt.Sprintf("cannot record the start of container %s, so it is not started: %v", a.Container, cause),
	}
	w.history = w.history.Apply(lifecycle.ActionEnded{Action: a, At: w.now(), Err: failed})
	w.told.ended(w.recorder(), w.desired.Pod, a, podruntime.Result{}, failed)
}

// start begins an action in a goroutine of its own.
func (w *Worker) start(ctx context.Context, a lifecycle.Action) {
	ctx, cancel := context.WithCancel(ctx)
	key, pod := a.Key(), w.desired.Pod
	w.working[key] = &work{action: a, since: time.Now(), cancel: cancel}
	w.log.Debug("started", "action", key.String(), "why", a.Why)
	w.told.started(w.recorder(), pod, a)
	do := w.doer(a)
	w.started.Go(func() {
		result, err := do(ctx, pod, a)
		w.box.put(func(m *mail) { m.ended = append(m.ended, ended{key: key, result: result, err: err}) })
	})
}

type doer func(context.Context, *corev1.Pod, lifecycle.Action) (podruntime.Result, error)

// doer says who carries out the action. It is called in the worker's goroutine.
func (w *Worker) doer(a lifecycle.Action) doer {
	if a.Kind != lifecycle.RunPostStart && a.Kind != lifecycle.RunPreStop {
		return w.cfg.Runtime.Do
	}
	hook := hooks.Hook{Pod: w.desired.Pod, ContainerID: a.ContainerID, IP: w.podIP()}
	hook.Container = containerOf(&hook.Pod.Spec, a.Container)
	if hook.Container != nil && hook.Container.Lifecycle != nil {
		hook.Handler = hook.Container.Lifecycle.PostStart
		if a.Kind == lifecycle.RunPreStop {
			hook.Handler = hook.Container.Lifecycle.PreStop
		}
	}
	return func(ctx context.Context, _ *corev1.Pod, _ lifecycle.Action) (podruntime.Result, error) {
		if hook.Handler == nil {
			return podruntime.Result{}, nil // the pod has lost its hook since
		}
		return podruntime.Result{}, w.cfg.Hooks.Run(ctx, hook)
	}
}

// podIP is the address to reach the pod at, as far as it was observed.
func (w *Worker) podIP() string {
	for _, s := range w.observed.Sandboxes {
		switch {
		case !s.Ready:
		case len(s.IPs) > 0:
			return s.IPs[0]
		case s.HostNetwork:
			if ips := w.cfg.Facts(w.desired.Pod).HostIPs; len(ips) > 0 {
				return ips[0]
			}
			return "127.0.0.1"
		}
	}
	return ""
}

func containerOf(spec *corev1.PodSpec, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range spec.EphemeralContainers {
		if c := &spec.EphemeralContainers[i].EphemeralContainerCommon; c.Name == name {
			return (*corev1.Container)(c)
		}
	}
	return nil
}

// foldEnd folds the end of an action into the history.
func (w *Worker) foldEnd(ctx context.Context, e ended) {
	wk := w.working[e.key]
	delete(w.working, e.key)
	wk.cancel()
	if ctx.Err() != nil && e.err != nil {
		return // abandoned with Run, whose ctx all actions share; the next agent begins it again
	}
	took := time.Since(wk.since)
	event := lifecycle.ActionEnded{
		Action:      wk.action,
		At:          w.now(),
		ImageRef:    e.result.ImageRef,
		ContainerID: e.result.ContainerID,
		Err:         failure(wk.action.Kind, e.err),
		// What succeeded although it was cancelled has taken effect.
		Canceled: wk.canceled && e.err != nil,
	}
	switch {
	case event.Canceled && w.sleepsBeforeStop(wk.action):
		// It had nothing to do but to last, and has as long as there was time: the
		// grace period may be no longer than the sleep. The kubelet tells of none.
		w.log.Debug("the preStop sleep ends with its time", "action", e.key.String(), "took", took)
		event.Err, event.Canceled = nil, false
	case event.Canceled && wk.action.Kind == lifecycle.RunPreStop:
		event.Err.Message = fmt.Sprintf("it was cut off after %s", took.Round(time.Millisecond))
	case event.Canceled:
		w.log.Debug("cancelled", "action", e.key.String(), "took", took)
	case e.err != nil:
		w.log.Warn("cannot carry out an action", "action", e.key.String(), "took", took, "err", e.err)
	default:
		w.log.Debug("done", "action", e.key.String(), "took", took)
	}
	w.history = w.history.Apply(event)
	if !event.Canceled || wk.action.Kind == lifecycle.RunPreStop {
		w.told.ended(w.recorder(), w.desired.Pod, wk.action, e.result, event.Err)
	}
}

// sleepsBeforeStop says that the action is a preStop hook that only sleeps.
func (w *Worker) sleepsBeforeStop(a lifecycle.Action) bool {
	c := containerOf(&w.desired.Pod.Spec, a.Container)
	return a.Kind == lifecycle.RunPreStop && c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil
}

// failure puts an error into words for the status. Runtimes give the reason
// themselves; what has none gets the usual one of its kind.
func failure(kind lifecycle.ActionKind, err error) *lifecycle.Failed {
	if err == nil {
		return nil
	}
	var failed *lifecycle.Failed
	if errors.As(err, &failed) {
		f := *failed // the core may keep it
		return &f
	}
	return &lifecycle.Failed{Reason: usualReason(kind), Message: err.Error()}
}

func usualReason(kind lifecycle.ActionKind) string {
	switch kind {
	case lifecycle.PrepareVolumes:
		return lifecycle.ReasonFailedMount
	case lifecycle.CreateSandbox:
		return lifecycle.ReasonFailedCreatePodSandBox
	case lifecycle.PullImage:
		return lifecycle.ReasonErrImagePull
	case lifecycle.StartContainer:
		return lifecycle.ReasonRunContainerError
	case lifecycle.RunPostStart:
		return lifecycle.ReasonPostStartHookError
	case lifecycle.RunPreStop:
		return lifecycle.ReasonPreStopHookError
	case lifecycle.StopContainer, lifecycle.RemoveContainer:
		return "KillContainerError"
	case lifecycle.StopSandbox, lifecycle.RemoveSandbox, lifecycle.RemovePod:
		return "KillPodSandboxError"
	}
	return lifecycle.ReasonError
}
