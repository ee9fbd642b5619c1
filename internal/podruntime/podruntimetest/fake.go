package podruntimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime"
)

// errGone is what a runtime says that is not there.
var errGone = errors.New("connection refused")

// Fake is a runtime that holds pods in memory, takes time for what it does, and
// misbehaves as its faults say. Under testing/synctest its time is virtual. It
// checks the rules that no worker may break; see Violations. It is safe for
// concurrent use.
type Fake struct {
	// Behave says how the process of a container lives: it ends by itself after
	// that long with that code; zero: it runs until it is stopped. Default: it
	// runs. Set it before use.
	Behave func(pod *corev1.Pod, container string, attempt int) (after time.Duration, code int32)
	// Linger is how long a process takes to end after the stop signal; default
	// 50 ms.
	Linger time.Duration
	// Wall is the machine's wall clock, which stamps what is seen; default
	// time.Now.
	Wall func() time.Time
	// Before is called before each Do takes time, outside all locks; optional.
	Before func(a lifecycle.Action)

	faults *fault.Injector

	mu         sync.Mutex
	pods       map[types.UID]*fakePod
	ids        int
	poke       func(types.UID)
	log        []string
	violations []string
}

type fakePod struct {
	pod        *corev1.Pod
	folder     bool
	sandboxes  []lifecycle.Sandbox
	containers []*fakeContainer
	runs       map[string]int // how often each container's process was started
}

type fakeContainer struct {
	lifecycle.Container
	signaled bool
}

// NewFake returns a Fake with the faults.
func NewFake(faults *fault.Injector) *Fake {
	return &Fake{
		Behave: func(*corev1.Pod, string, int) (time.Duration, int32) { return 0, 0 },
		Linger: 50 * time.Millisecond,
		Wall:   time.Now,
		faults: faults,
		pods:   make(map[types.UID]*fakePod),
		poke:   func(types.UID) {},
	}
}

// took is how long each kind of action takes.
var took = map[lifecycle.ActionKind]time.Duration{
	lifecycle.PrepareVolumes: 2 * time.Millisecond,
	lifecycle.CreateSandbox:  10 * time.Millisecond,
	lifecycle.PullImage:      100 * time.Millisecond,
	lifecycle.StartContainer: 20 * time.Millisecond,
	lifecycle.StopSandbox:    5 * time.Millisecond,
	lifecycle.RemoveSandbox:  5 * time.Millisecond,
	lifecycle.RemovePod:      2 * time.Millisecond,
}

// Do carries out an action.
func (f *Fake) Do(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) (podruntime.Result, error) {
	if f.Before != nil {
		f.Before(a)
	}
	effect := f.faults.Action(time.Now(), a.Kind, a.Container)
	f.mu.Lock()
	f.log = append(f.log, a.Key().String())
	f.mu.Unlock()
	canceled := !sleep(ctx, took[a.Kind]+effect.Slow)
	switch {
	case canceled && !effect.Late:
		return podruntime.Result{}, ctx.Err()
	case canceled:
		time.Sleep(time.Second) // abandoned, and done all the same
	case f.faults.Active(time.Now(), fault.RuntimeGone):
		return podruntime.Result{}, errGone
	case effect.Fail:
		return podruntime.Result{}, fmt.Errorf("%s failed by fault", a.Kind)
	}
	if a.Kind == lifecycle.StopContainer {
		return podruntime.Result{}, f.stop(ctx, pod, a)
	}
	result, err := f.apply(pod, a)
	if canceled {
		return podruntime.Result{}, ctx.Err() // the answer is lost
	}
	return result, err
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// apply makes the effect of an action.
func (f *Fake) apply(pod *corev1.Pod, a lifecycle.Action) (podruntime.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[pod.UID]
	if p == nil {
		p = &fakePod{pod: pod, runs: make(map[string]int)}
		f.pods[pod.UID] = p
	}
	defer func() {
		if p.gone() {
			delete(f.pods, pod.UID)
		}
		f.changed(pod.UID)
	}()
	switch a.Kind {
	case lifecycle.PrepareVolumes:
		p.folder = true
	case lifecycle.CreateSandbox:
		return podruntime.Result{}, f.createSandbox(p, a)
	case lifecycle.PullImage:
		return podruntime.Result{ImageRef: "sha256:" + a.Container}, nil
	case lifecycle.StartContainer:
		return f.startContainer(p, a)
	case lifecycle.RemoveContainer:
		p.containers = slices.DeleteFunc(p.containers, func(c *fakeContainer) bool {
			if c.ID == a.ContainerID && c.State == lifecycle.ContainerRunning {
				f.violate("running container %s of %s is removed", c.Name, pod.Name)
			}
			return c.ID == a.ContainerID
		})
	case lifecycle.StopSandbox, lifecycle.RemoveSandbox:
		f.endSandbox(p, a)
	case lifecycle.RemovePod:
		// Dead ones may stay for those who ask for their logs.
		if p.alive() || slices.ContainsFunc(p.sandboxes, func(s lifecycle.Sandbox) bool { return s.Ready }) {
			f.violate("pod %s is removed while something of it is alive", pod.Name)
		}
		p.folder = false
	default:
		f.violate("a runtime is asked to %s", a.Kind)
	}
	return podruntime.Result{}, nil
}

func (f *Fake) createSandbox(p *fakePod, a lifecycle.Action) error {
	if !p.folder {
		f.violate("sandbox of %s without volumes", p.pod.Name)
	}
	for _, s := range p.sandboxes {
		if s.Attempt == a.Attempt && s.Ready {
			return nil // an earlier one took effect
		}
		if s.Ready {
			f.violate("two sandboxes of %s", p.pod.Name)
		}
	}
	for uid, other := range f.pods {
		if uid != p.pod.UID && other.pod.Name == p.pod.Name && other.pod.Namespace == p.pod.Namespace && other.alive() {
			f.violate("two pods named %s", p.pod.Name)
		}
	}
	f.ids++
	p.sandboxes = append(p.sandboxes, lifecycle.Sandbox{
		ID: fmt.Sprintf("s%d", f.ids), Attempt: a.Attempt, Ready: true, CreatedAt: f.Wall().Round(0), IPs: []string{"10.88.0.2"},
	})
	return nil
}

func (f *Fake) startContainer(p *fakePod, a lifecycle.Action) (podruntime.Result, error) {
	if !slices.ContainsFunc(p.sandboxes, func(s lifecycle.Sandbox) bool { return s.ID == a.SandboxID && s.Ready }) {
		return podruntime.Result{}, errors.New("sandbox is not ready")
	}
	for _, c := range p.containers {
		if c.Name != a.Container {
			continue
		}
		if c.Attempt == a.Attempt && c.SandboxID == a.SandboxID {
			return podruntime.Result{ContainerID: c.ID}, nil
		}
		if c.State == lifecycle.ContainerRunning {
			f.violate("two containers %s in %s", c.Name, p.pod.Name)
		}
	}
	f.ids++
	now := f.Wall().Round(0)
	c := &fakeContainer{Container: lifecycle.Container{
		ID: fmt.Sprintf("c%d", f.ids), Name: a.Container, SandboxID: a.SandboxID, Attempt: a.Attempt,
		Hash: hashOf(p.pod, a.Container), State: lifecycle.ContainerRunning, CreatedAt: now, StartedAt: now,
		Image: "image", ImageID: a.ImageRef,
	}}
	p.containers = append(p.containers, c)
	p.runs[a.Container]++
	if after, code := f.Behave(p.pod, a.Container, a.Attempt); after > 0 {
		time.AfterFunc(after, func() { f.exit(p.pod.UID, c, code, "") })
	}
	return podruntime.Result{ContainerID: c.ID}, nil
}

func hashOf(pod *corev1.Pod, name string) string {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return lifecycle.ContainerHash(&list[i])
			}
		}
	}
	return ""
}

// endSandbox stops or removes a sandbox with all that is in it.
func (f *Fake) endSandbox(p *fakePod, a lifecycle.Action) {
	for i := range p.sandboxes {
		if p.sandboxes[i].ID == a.SandboxID {
			p.sandboxes[i].Ready = false
		}
	}
	for _, c := range p.containers {
		if c.SandboxID == a.SandboxID && c.State == lifecycle.ContainerRunning {
			f.violate("%s of %s while container %s runs", a.Kind, p.pod.Name, c.Name)
			f.end(c, 137, "Error")
		}
	}
	if a.Kind == lifecycle.RemoveSandbox {
		p.sandboxes = slices.DeleteFunc(p.sandboxes, func(s lifecycle.Sandbox) bool { return s.ID == a.SandboxID })
		p.containers = slices.DeleteFunc(p.containers, func(c *fakeContainer) bool { return c.SandboxID == a.SandboxID })
	}
}

// stop signals a container and waits for its end, or kills it at a.Until.
func (f *Fake) stop(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) error {
	c := f.container(pod.UID, a.ContainerID)
	if c == nil {
		return nil
	}
	f.mu.Lock()
	first := !c.signaled
	c.signaled = true
	f.mu.Unlock()
	if first {
		time.AfterFunc(f.Linger, func() { f.exit(pod.UID, c, 0, "") })
	}
	for f.running(c) {
		if !time.Now().Before(a.Until) {
			f.exit(pod.UID, c, 137, "Error")
			break
		}
		if !sleep(ctx, min(10*time.Millisecond, time.Until(a.Until))) {
			return ctx.Err()
		}
	}
	return nil
}

func (f *Fake) container(uid types.UID, id string) *fakeContainer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[uid]; p != nil {
		for _, c := range p.containers {
			if c.ID == id {
				return c
			}
		}
	}
	return nil
}

func (f *Fake) running(c *fakeContainer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return c.State == lifecycle.ContainerRunning
}

// exit ends a container and tells.
func (f *Fake) exit(uid types.UID, c *fakeContainer, code int32, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(c, code, reason)
	f.changed(uid)
}

func (f *Fake) end(c *fakeContainer, code int32, reason string) {
	if c.State != lifecycle.ContainerRunning {
		return
	}
	c.State, c.ExitCode, c.FinishedAt = lifecycle.ContainerExited, code, f.Wall().Round(0)
	if c.Reason = reason; reason == "" {
		c.Reason = lifecycle.ReasonCompleted
		if code != 0 {
			c.Reason = lifecycle.ReasonError
		}
	}
}

// changed tells of a change, if the event is not lost. The caller holds mu.
func (f *Fake) changed(uid types.UID) {
	if _, lost := f.faults.Take(time.Now(), fault.LoseEvent); !lost {
		f.poke(uid)
	}
}

func (f *Fake) violate(format string, args ...any) {
	f.violations = append(f.violations, fmt.Sprintf(format, args...))
}
