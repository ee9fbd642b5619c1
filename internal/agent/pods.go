package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/lifecycle"
)

// ErrNoPod says that there is no pod of that name.
var ErrNoPod = errors.New("no such pod")

// Objects are what a user asks for, validated and with defaults.
type Objects struct {
	Pods       []*corev1.Pod       `json:"pods,omitempty"`
	ConfigMaps []*corev1.ConfigMap `json:"configMaps,omitempty"`
	Secrets    []*corev1.Secret    `json:"secrets,omitempty"`
	// Await says that the user waits for the end of the pods: see Told.
	Await bool `json:"await,omitempty"`
}

// Apply asks for objects. ConfigMaps and Secrets are there before the pods that
// use them. The pods' names come back in the order given, with their uids.
func (a *Agent) Apply(ctx context.Context, o Objects) ([]Ref, error) {
	changed := a.objects.put(o.ConfigMaps, o.Secrets)
	var refs []Ref
	var errs []error
	for _, p := range o.Pods {
		p = p.DeepCopy()
		p.Generation = 1
		uid, err := a.pods.Set(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if o.Await {
			a.pods.Await(uid)
		}
		refs = append(refs, Ref{Namespace: p.Namespace, Name: p.Name, UID: uid})
	}
	a.tellDeletions() // of those that were replaced
	for _, d := range a.pods.List() {
		if !changed[d.Pod.Namespace] {
			continue
		}
		a.workers.SourcesChanged(d.Pod.UID)
		if err := a.runtime.RefreshVolumes(ctx, d.Pod); err != nil {
			a.log.Warn("cannot bring the volumes of a pod up to date", "uid", d.Pod.UID, "err", err)
		}
	}
	a.keep()
	return refs, errors.Join(errs...)
}

// Told says that the ends of pods were told to the user who awaited them: only
// then does the same pod, asked for once more, run once more.
func (a *Agent) Told(uids []types.UID) {
	for _, uid := range uids {
		a.pods.Told(uid)
	}
	a.keep()
}

// Adopt takes up the pods of an earlier agent that nobody has asked for since,
// and names them.
func (a *Agent) Adopt() ([]Ref, error) {
	var refs []Ref
	var errs []error
	for _, d := range a.pods.Leftover() {
		if _, err := a.pods.Set(d.Pod); err != nil {
			errs = append(errs, err)
			continue
		}
		refs = append(refs, refOf(d.Pod))
	}
	return refs, errors.Join(errs...)
}

// Pods lists all pods with their newest status. Of a pod whose stop was asked for
// it gives the reason already when nobody has begun to stop it; see Stopping.
func (a *Agent) Pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, d := range slices.Concat(a.pods.List(), a.pods.Leftover()) {
		p := d.Pod.DeepCopy()
		if s := a.feed.status(p.UID); s != nil {
			p.Status = *s.DeepCopy()
		}
		if s := &p.Status; d.Stop != nil && s.Reason == "" && !terminal(s) {
			s.Reason, s.Message = d.Stop.Reason, d.Stop.Message
		}
		pods = append(pods, p)
	}
	return pods
}

// Reasons in the statuses of pods that were stopped and stay listed.
const (
	ReasonStopped  = "Stopped"  // by Stop
	ReasonTimedOut = "TimedOut" // by TimeOut
)

// Stopping says that a pod is being stopped and stays listed: what is to become
// the reason of its end is in the status before the pod has ended, and never
// otherwise. One that is to be removed has a deletion timestamp instead.
func Stopping(s *corev1.PodStatus) bool { return s.Reason != "" && !terminal(s) }

// Ending says that a pod ends by itself: its sidecars are being stopped.
func Ending(spec *corev1.PodSpec, s *corev1.PodStatus) bool {
	return !terminal(s) && lifecycle.Ending(spec, s)
}

func terminal(s *corev1.PodStatus) bool {
	return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
}

// Watch calls fn with the newest status of each pod, then with all that happens,
// until ctx ends or fn fails. lost counts what a reader that was too slow missed.
func (a *Agent) Watch(ctx context.Context, fn func(u Update, lost int) error) error {
	return a.feed.read(ctx, fn)
}

// Delete asks for the end of a pod. grace in seconds replaces the pod's own;
// nil: the pod's own.
func (a *Agent) Delete(namespace, name string, grace *int64) (Ref, error) {
	uid, ok := a.podUID(namespace, name)
	if !ok {
		return Ref{}, fmt.Errorf("%w: %s/%s", ErrNoPod, namespace, name)
	}
	a.DeleteUID(uid, grace)
	return Ref{Namespace: namespace, Name: name, UID: uid}, nil
}

// Stop asks for the end of what runs of a pod, which stays listed, with its logs,
// until it is deleted. grace in seconds can shorten the pod's own; nil: the pod's
// own.
func (a *Agent) Stop(namespace, name string, grace *int64) (Ref, error) {
	uid, ok := a.podUID(namespace, name)
	if !ok {
		return Ref{}, fmt.Errorf("%w: %s/%s", ErrNoPod, namespace, name)
	}
	stop := lifecycle.Stop{Reason: ReasonStopped, Message: "stopped by berth stop", AsDeleted: true}
	if grace != nil {
		d := time.Duration(*grace) * time.Second
		stop.Grace = &d
	}
	a.pods.Stop(uid, stop)
	a.keep()
	return Ref{Namespace: namespace, Name: name, UID: uid}, nil
}

// TimeOut asks for the end of the pod with that uid because who ran it waited so
// long for its end in vain. It stays listed, as failed, and its message keeps what
// it was not done by: nobody can see that any more once it has ended. grace is that
// of Stop. It says whether the pod is known.
func (a *Agent) TimeOut(uid types.UID, waited time.Duration, why string, grace *int64) bool {
	stop := lifecycle.Stop{Reason: ReasonTimedOut, Message: fmt.Sprintf("not done when the --timeout of berth run was over, %s", waited)}
	if why != "" {
		stop.Message += ": " + why
	}
	if grace != nil {
		d := time.Duration(*grace) * time.Second
		stop.Grace = &d
	}
	known := a.pods.Stop(uid, stop)
	a.keep()
	return known
}

// DeleteUID asks for the end of the pod with that uid.
func (a *Agent) DeleteUID(uid types.UID, grace *int64) bool {
	known := a.pods.Delete(uid, grace)
	a.tellDeletions()
	a.keep()
	return known
}

// tellDeletions tells of pods that are to go now: their statuses need not change
// for that.
func (a *Agent) tellDeletions() {
	for _, d := range a.pods.List() {
		if d.Pod.DeletionTimestamp != nil {
			a.feed.tellDeleted(d.Pod.UID, a.deleted(refOf(d.Pod)))
		}
	}
}

// keepWait bounds how long who asks for something waits for the disk.
const keepWait = 5 * time.Second

// keep returns when what was asked for is on disk: an agent that is killed after
// its answer has not forgotten. The work has begun meanwhile, and goes on without a
// record; who asked learns that from Keep.
func (a *Agent) keep() {
	if err := a.Keep(context.Background()); err != nil {
		a.log.Debug("what was asked for is not on disk yet, an agent that is killed now forgets it", "err", err)
	}
}

// Keep returns when all that was asked for, and all that came of it, is on disk, or
// says why it is not.
func (a *Agent) Keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keepWait)
	defer cancel()
	return a.db.Sync(ctx)
}

// Known says whether the agent knows a pod, be it ending.
func (a *Agent) Known(uid types.UID) bool {
	_, ok := a.pods.Get(uid)
	return ok
}
