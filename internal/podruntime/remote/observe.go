package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/berth-run/berth/internal/format"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podconfig"
	"github.com/berth-run/berth/internal/podruntime"
)

// labelOwner marks what this node made.
const labelOwner = "berth.run/owner"

// Observe reports what the runtime holds of the pod. What it saw before is
// returned again as long as nothing says that it may be old.
func (r *Runtime) Observe(ctx context.Context, pod *corev1.Pod) (lifecycle.Observed, error) {
	p := r.seen.hold(pod.UID)
	defer r.seen.drop(pod.UID, p)
	p.looking.Lock()
	defer p.looking.Unlock()
	l := r.seen.last(p)
	if !l.fresh {
		var err error
		if l, err = r.look(ctx, pod, l); err != nil {
			return lifecycle.Observed{}, fmt.Errorf("cannot observe pod %s: %w", format.Pod(pod), err)
		}
		r.seen.keep(pod.UID, p, l)
	}
	o := lifecycle.Observed{At: byTheClock(l.at.Round(0), time.Now().Round(0), time.Since(l.at)), Leftovers: r.leftovers(pod)}
	for _, id := range slices.Sorted(maps.Keys(l.boxes)) {
		o.Sandboxes = append(o.Sandboxes, l.boxes[id])
	}
	for _, id := range slices.Sorted(maps.Keys(l.conts)) {
		o.Containers = append(o.Containers, l.conts[id])
	}
	return o, nil
}

// byTheClock is the moment elapsed ago, which was at by the wall clock of then,
// as the wall clock counts it now: it may have been set since. Slow drift is let
// be, so that the same moment mostly has the same time.
func byTheClock(at, now time.Time, elapsed time.Duration) time.Time {
	if stepped := now.Sub(at) - elapsed; stepped.Abs() > time.Second {
		return at.Add(stepped)
	}
	return at
}

// look asks the runtime. Details are only asked for where the state is another
// than before: they don't change otherwise.
func (r *Runtime) look(ctx context.Context, pod *corev1.Pod, before look) (look, error) {
	now := look{
		upTo: before.upTo, at: time.Now(),
		boxes: make(map[string]lifecycle.Sandbox), conts: make(map[string]lifecycle.Container),
	}
	selector := map[string]string{podconfig.LabelPodUID: string(pod.UID)}
	boxes, err := r.cfg.Service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	if err != nil {
		return look{}, err
	}
	conts, err := r.cfg.Service.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	if err != nil {
		return look{}, err
	}
	for _, b := range boxes {
		if old, ok := before.boxes[b.Id]; ok && old.Ready == (b.State == runtimeapi.PodSandboxState_SANDBOX_READY) {
			now.boxes[b.Id] = old
			continue
		}
		status, err := r.cfg.Service.PodSandboxStatus(ctx, b.Id, false)
		if crierrors.IsNotFound(err) {
			continue // it went since it was listed
		}
		if err != nil {
			return look{}, err
		}
		now.boxes[b.Id] = sandboxOf(status.GetStatus())
	}
	for _, c := range conts {
		if old, ok := before.conts[c.Id]; ok && old.State == stateOf(c.State) && old.State != lifecycle.ContainerUnknown {
			now.conts[c.Id] = old
			continue
		}
		status, err := r.statusOf(ctx, c)
		if crierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return look{}, err
		}
		seen := containerOf(status.GetStatus())
		seen.Signal = signalOf(status.GetInfo())
		seen.SandboxID = c.PodSandboxId
		if seen.State == lifecycle.ContainerExited {
			seen.Message = r.lastWords(pod, status.GetStatus(), seen)
		}
		now.conts[c.Id] = seen
	}
	return now, nil
}

// statusOf asks for one container. Of one that has ended it asks for everything:
// what the CRI has no field for.
func (r *Runtime) statusOf(ctx context.Context, c *runtimeapi.Container) (*runtimeapi.ContainerStatusResponse, error) {
	const exited = runtimeapi.ContainerState_CONTAINER_EXITED
	status, err := r.cfg.Service.ContainerStatus(ctx, c.Id, c.State == exited)
	if err == nil && c.State != exited && status.GetStatus().GetState() == exited { // since it was listed
		return r.cfg.Service.ContainerStatus(ctx, c.Id, true)
	}
	return status, err
}

// Pods lists the pods that the runtime or the disk holds something of.
func (r *Runtime) Pods(ctx context.Context) ([]podruntime.Ref, error) {
	var selector map[string]string
	if r.cfg.Owner != "" {
		selector = map[string]string{labelOwner: r.cfg.Owner}
	}
	refs := make(map[types.UID]podruntime.Ref)
	add := func(labels map[string]string) {
		if uid := types.UID(labels[podconfig.LabelPodUID]); uid != "" {
			refs[uid] = podruntime.Ref{UID: uid, Namespace: labels[podconfig.LabelPodNamespace], Name: labels[podconfig.LabelPodName]}
		}
	}
	boxes, err := r.cfg.Service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("cannot list pods: %w", err)
	}
	for _, b := range boxes {
		add(b.Labels)
	}
	conts, err := r.cfg.Service.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("cannot list pods: %w", err)
	}
	for _, c := range conts {
		add(c.Labels)
	}
	folders, err := os.ReadDir(r.cfg.Volumes.Pods())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list pods: %w", err)
	}
	for _, f := range folders {
		uid := types.UID(f.Name())
		if _, known := refs[uid]; !known && f.IsDir() {
			refs[uid] = podruntime.Ref{UID: uid}
		}
	}
	return slices.SortedFunc(maps.Values(refs), func(a, b podruntime.Ref) int {
		return strings.Compare(string(a.UID), string(b.UID))
	}), nil
}
