package podruntimetest

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime"
)

// Observe reports what the runtime holds of a pod.
func (f *Fake) Observe(ctx context.Context, pod *corev1.Pod) (lifecycle.Observed, error) {
	at := f.Wall().Round(0)
	if !sleep(ctx, time.Millisecond) {
		return lifecycle.Observed{}, ctx.Err()
	}
	if f.faults.Active(time.Now(), fault.RuntimeGone) {
		return lifecycle.Observed{}, errGone
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o := lifecycle.Observed{At: at}
	p := f.pods[pod.UID]
	if p == nil {
		return o, nil
	}
	o.Leftovers = p.folder
	o.Sandboxes = slices.Clone(p.sandboxes)
	for _, c := range p.containers {
		o.Containers = append(o.Containers, c.Container)
	}
	return o, nil
}

// Exec does nothing.
func (f *Fake) Exec(context.Context, string, []string) (output []byte, exitCode int32, err error) {
	return nil, 0, nil
}

// Pods lists the pods held.
func (f *Fake) Pods(context.Context) ([]podruntime.Ref, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var refs []podruntime.Ref
	for _, uid := range slices.Sorted(maps.Keys(f.pods)) {
		pod := f.pods[uid].pod
		refs = append(refs, podruntime.Ref{UID: uid, Namespace: pod.Namespace, Name: pod.Name})
	}
	return refs, nil
}

// Events pokes at each change that is not lost, and all pods once a minute.
func (f *Fake) Events(ctx context.Context, poke func(types.UID)) error {
	f.mu.Lock()
	f.poke = poke
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.poke = func(types.UID) {}
		f.mu.Unlock()
	}()
	for sleep(ctx, time.Minute) {
		f.mu.Lock()
		for uid := range f.pods {
			poke(uid)
		}
		f.mu.Unlock()
	}
	return nil
}

func (p *fakePod) gone() bool {
	return !p.folder && len(p.sandboxes) == 0 && len(p.containers) == 0
}

func (p *fakePod) alive() bool {
	return slices.ContainsFunc(p.containers, func(c *fakeContainer) bool { return c.State == lifecycle.ContainerRunning })
}

// Log lists the actions begun, in order, as their keys print.
func (f *Fake) Log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// Violations lists what was done that no worker may do.
func (f *Fake) Violations() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.violations)
}

// Runs says how often the process of a container was started.
func (f *Fake) Runs(uid types.UID, container string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[uid]; p != nil {
		return p.runs[container]
	}
	return 0
}

// Running lists the containers of a pod that run.
func (f *Fake) Running(uid types.UID) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	if p := f.pods[uid]; p != nil {
		for _, c := range p.containers {
			if c.State == lifecycle.ContainerRunning {
				names = append(names, c.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Kill ends a container as if its process had ended by itself.
func (f *Fake) Kill(uid types.UID, container string, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[uid]; p != nil {
		for _, c := range p.containers {
			if c.Name == container {
				f.end(c, code, "")
			}
		}
		f.changed(uid)
	}
}

// LoseSandbox ends the sandbox of a pod with all that is in it.
func (f *Fake) LoseSandbox(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[uid]; p != nil {
		for i := range p.sandboxes {
			p.sandboxes[i].Ready = false
		}
		for _, c := range p.containers {
			f.end(c, 137, "")
		}
		f.changed(uid)
	}
}

// Reboot is what a power failure leaves: folders, and nothing that ran.
func (f *Fake) Reboot() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pods {
		for _, c := range p.containers {
			f.end(c, 137, "") // so that its process starts no more
		}
		p.sandboxes, p.containers = nil, nil
	}
}

var _ podruntime.Runtime = (*Fake)(nil)
