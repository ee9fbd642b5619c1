package remote

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime"
)

// abandonPatience is how long a cancelled call that makes something may go on:
// mostly it ends by itself, and then it is known whether it took effect.
const abandonPatience = 10 * time.Second

// Runtime runs pods over CRI. It is safe for concurrent use.
type Runtime struct {
	cfg   Config
	seen  *sightings
	pulls chan struct{} // holds one value for each pull under way
	calls *stopCalls
	mount *mountedVolumes

	pulled *pulled // who may use which image
}

var _ podruntime.Runtime = (*Runtime)(nil)

// New returns a Runtime. It starts nothing and calls nobody, but for what Pulls
// has of earlier runs.
func New(cfg Config) (*Runtime, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	pulled, err := newPulled(cfg.Pulls, cfg.Log)
	if err != nil {
		return nil, err
	}
	return &Runtime{
		cfg:    cfg,
		seen:   newSightings(),
		pulls:  make(chan struct{}, cfg.MaxPulls),
		calls:  newStopCalls(),
		mount:  newMountedVolumes(),
		pulled: pulled,
	}, nil
}

// Do carries out one action; see podruntime.Runtime.
func (r *Runtime) Do(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) (podruntime.Result, error) {
	// Whatever comes of it, what was seen before is old now.
	defer r.seen.outdate(pod.UID)
	var result podruntime.Result
	var err error
	switch a.Kind {
	case lifecycle.PrepareVolumes:
		err = r.prepareVolumes(ctx, pod)
	case lifecycle.CreateSandbox:
		err = r.createSandbox(ctx, pod, a)
	case lifecycle.PullImage:
		result.ImageRef, err = r.pullContainerImage(ctx, pod, a.Container)
	case lifecycle.StartContainer:
		result.ContainerID, err = r.startContainer(ctx, pod, a)
	case lifecycle.StopContainer:
		err = r.stopContainer(ctx, pod, a)
	case lifecycle.RemoveContainer:
		err = r.removeContainer(ctx, pod, a)
	case lifecycle.StopSandbox:
		err = r.stopSandbox(ctx, a.SandboxID)
	case lifecycle.RemoveSandbox:
		err = r.removeSandbox(ctx, a.SandboxID)
	case lifecycle.RemovePod:
		err = r.removePod(ctx, pod)
	case lifecycle.RunPostStart, lifecycle.RunPreStop:
		err = fmt.Errorf("cannot %s: hooks are not the runtime's", a.Kind)
	}
	return result, err
}

// making returns a context for a call that makes or removes something. It
// outlives ctx by abandonPatience, so that the call's outcome is mostly known
// also when it is cancelled.
func (r *Runtime) making(ctx context.Context) (context.Context, context.CancelFunc) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.CallTimeout)
	stop := context.AfterFunc(ctx, func() {
		late := time.NewTimer(abandonPatience)
		defer late.Stop()
		select {
		case <-call.Done():
		case <-late.C:
			cancel()
		}
	})
	return call, func() {
		stop()
		cancel()
	}
}

// RefreshVolumes brings the content of the pod's volumes up to date after a
// ConfigMap or Secret has changed.
func (r *Runtime) RefreshVolumes(ctx context.Context, pod *corev1.Pod) error {
	return r.cfg.Volumes.Refresh(ctx, pod)
}
