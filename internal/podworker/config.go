package podworker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/hooks"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime"
)

// Desired is what is wanted of one pod.
type Desired struct {
	// Pod is read-only. A deletion timestamp asks for its end.
	Pod *corev1.Pod
	// Stop asks for its end for a reason of the node's; nil: it may stay.
	Stop *lifecycle.Stop
	// Reject says that it may not run here; nil: it was admitted.
	Reject *lifecycle.Reject
}

// ending says that nothing of the pod will start any more.
func (d Desired) ending() bool {
	return d.Pod.DeletionTimestamp != nil || d.Stop != nil || d.Reject != nil
}

// Hooks runs postStart and preStop hooks; hooks.Runner is the real one.
type Hooks interface {
	// Run runs a hook and returns when it has ended. Cancelling ctx cuts it off
	// with all that it started.
	Run(ctx context.Context, h hooks.Hook) error
}

// Probes runs probes.
type Probes interface {
	// Set says which probes of the pod should be running now; none: none. It
	// must not block.
	Set(pod *corev1.Pod, probes []lifecycle.Probe)
}

// Status takes what is to be reported.
type Status interface {
	// Set hands over the newest status of the pod. It must not block, nor change
	// what status points to.
	Set(pod *corev1.Pod, status corev1.PodStatus)
	// Finished says that nothing of the pod is left on the node and that no
	// status follows. It must not block.
	Finished(pod *corev1.Pod)
}

// Records keeps histories on disk.
type Records interface {
	// Load returns the history of a pod; the zero History if there is none, and
	// with ErrTorn if it cannot be read.
	Load(uid types.UID) (lifecycle.History, error)
	// Save keeps the history. It is on disk after the next Sync, or soon.
	Save(uid types.UID, h lifecycle.History) error
	// Sync returns when all that was saved before is on disk.
	Sync(ctx context.Context) error
	// Delete forgets the history of a pod.
	Delete(uid types.UID)
}

// Config is what workers need. The zero value of an optional field means its
// default.
type Config struct {
	Runtime podruntime.Runtime // required
	Records Records            // required
	Hooks   Hooks              // required
	Probes  Probes             // required
	Status  Status             // required
	// Recorder takes events; default: none.
	Recorder podruntime.Recorder
	// Facts says what the node knows; called for each decision, so it must be
	// cheap. Default: nothing is known.
	Facts func(pod *corev1.Pod) lifecycle.Facts
	// Decided is called with each decision that differs from the one before, for
	// the record. It must not block. Default: none.
	Decided func(pod *corev1.Pod, d lifecycle.Decision)
	// ObserveTimeout bounds one observation. Default 30 s.
	ObserveTimeout time.Duration
	// Wall reads the wall clock. Default time.Now; tests let it jump.
	Wall func() time.Time
	Log  *slog.Logger // default: discard
}

func (c *Config) complete() error {
	var errs []error
	for name, missing := range map[string]bool{
		"Runtime": c.Runtime == nil, "Records": c.Records == nil, "Hooks": c.Hooks == nil,
		"Probes": c.Probes == nil, "Status": c.Status == nil,
	} {
		if missing {
			errs = append(errs, errors.New("podworker: Config."+name+" is required"))
		}
	}
	if c.Recorder == nil {
		c.Recorder = noRecorder{}
	}
	if c.Facts == nil {
		c.Facts = func(*corev1.Pod) lifecycle.Facts { return lifecycle.Facts{} }
	}
	if c.Decided == nil {
		c.Decided = func(*corev1.Pod, lifecycle.Decision) {}
	}
	if c.ObserveTimeout <= 0 {
		c.ObserveTimeout = 30 * time.Second
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

type noRecorder struct{}

func (noRecorder) Record(corev1.ObjectReference, string, string, string) {}
