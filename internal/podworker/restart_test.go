package podworker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/db"
	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/hooks"
	"github.com/berth-run/berth/internal/lifecycle"
)

var churnSeeds = flag.Int("seeds", 2, "how many seeds TestChurn tries")

// storyPod has an init container, a sidecar, two main containers and hooks.
func storyPod() *corev1.Pod {
	pod := podOf("story", "init:setup", "sidecar:proxy", "app", "worker")
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}},
		PreStop:   &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}},
	}
	return pod
}

// An agent that dies, or stops, at any step of a pod's life and starts again
// brings the pod to the same end, and starts no container a second time.
func TestAgentRestartsAtEveryStep(t *testing.T) {
	for _, kill := range []bool{false, true} {
		for step := 0; ; step++ {
			reached := true
			t.Run(fmt.Sprintf("kill=%v/step=%d", kill, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					reached = restartAt(t, step, kill)
				})
			})
			if !reached || t.Failed() {
				if step < 20 && !t.Failed() {
					t.Errorf("the story has only %d steps", step)
				}
				break
			}
		}
	}
}

// restartAt plays the story and restarts the agent at one step: step 2n is the
// begin of the n-th action, 2n+1 a moment after it. It says whether there was
// such a step.
func restartAt(t *testing.T, step int, kill bool) (reached bool) {
	w := newWorld(t, "")
	w.rt.Behave = func(_ *corev1.Pod, container string, _ int) (time.Duration, int32) {
		if container == "setup" {
			return time.Second, 0
		}
		return 0, 0
	}
	var count atomic.Int64
	restart := make(chan struct{}, 1)
	w.rt.Before = func(lifecycle.Action) {
		if int(count.Add(1)-1) == step/2 {
			restart <- struct{}{}
		}
	}
	pod := storyPod()
	waitOrRestart := func(ok func() bool) bool {
		for range 200_000 {
			select {
			case <-restart:
				reached = true
				if step%2 == 1 {
					time.Sleep(10 * time.Millisecond)
				}
				w.restart(kill)
			default:
			}
			if ok() {
				return true
			}
			time.Sleep(time.Millisecond)
		}
		return false
	}
	w.set(Desired{Pod: pod})
	if !waitOrRestart(func() bool { return w.ready(pod.UID) }) {
		t.Fatalf("never ready: %q", w.rt.Log())
	}
	for _, name := range []string{"setup", "proxy", "app", "worker"} {
		if runs := w.rt.Runs(pod.UID, name); runs != 1 {
			t.Errorf("%s ran %d times: %q", name, runs, w.rt.Log())
		}
	}
	for _, c := range w.status(pod.UID).ContainerStatuses {
		if c.RestartCount != 0 {
			t.Errorf("%s shows %d restarts", c.Name, c.RestartCount)
		}
	}
	time.Sleep(10 * time.Second)
	w.delete(pod)
	if !waitOrRestart(func() bool { return w.isFinished(pod.UID) }) {
		t.Fatalf("never finished: %q", w.rt.Log())
	}
	if refs, err := w.rt.Pods(t.Context()); err != nil || len(refs) != 0 {
		t.Errorf("left %v, %v", refs, err)
	}
	return reached
}

// A container of a Never pod runs once, whatever happens to the agent.
func TestNeverPodRunsOnce(t *testing.T) {
	for ms := 0; ms < 400; ms += 3 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "")
			w.rt.Behave = func(*corev1.Pod, string, int) (time.Duration, int32) { return 100 * time.Millisecond, 7 }
			pod := podOf("once", "app")
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			w.set(Desired{Pod: pod})
			time.Sleep(time.Duration(ms) * time.Millisecond)
			w.restart(true)
			w.waitFor("failed", time.Minute, func() bool { return w.status(pod.UID).Phase == corev1.PodFailed })
			state := w.status(pod.UID).ContainerStatuses[0].State.Terminated
			if runs := w.rt.Runs(pod.UID, "app"); runs != 1 || state == nil || state.ExitCode != 7 {
				t.Errorf("killed after %d ms: ran %d times, state %+v", ms, runs, state)
			}
		})
	}
}

// The machine loses power at any moment, and with it all that ran: a container
// of a Never pod that was started is not started a second time.
func TestNeverPodRunsOnceOverPowerFailures(t *testing.T) {
	ran := 0
	for ms := 100; ms < 250; ms++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "")
			pod := podOf("once", "app")
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			w.set(Desired{Pod: pod})
			time.Sleep(time.Duration(ms) * time.Millisecond)
			before := w.rt.Runs(pod.UID, "app")
			ran += before
			w.rt.Reboot()
			w.restart(true)
			time.Sleep(10 * time.Minute)
			if runs := w.rt.Runs(pod.UID, "app"); runs > 1 {
				t.Errorf("power lost after %d ms: ran %d times", ms, runs)
			}
			if phase := w.status(pod.UID).Phase; before == 1 && phase != corev1.PodFailed {
				t.Errorf("power lost after %d ms: the pod is %s", ms, phase)
			}
		})
	}
	if ran == 0 {
		t.Error("no container ran before the power was lost")
	}
}

// Many pods come, crash, and go, while things go wrong; in the end each pod is
// where it should be, and nothing is left of those that went.
func TestChurn(t *testing.T) {
	for seed := range *churnSeeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { churn(t, uint64(seed)) })
		})
	}
}

func churn(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	faults := randomFaults(rnd)
	t.Logf("seed %d, faults: %s", seed, fault.Format(faults))
	w := newWorld(t, fault.Format(faults))
	w.rt.Behave = func(pod *corev1.Pod, container string, attempt int) (time.Duration, int32) {
		switch {
		case container == "setup":
			return time.Second, 0
		case container == "flaky" && attempt < 3:
			return 2 * time.Second, 1
		case container == "job":
			return 20 * time.Second, 0
		}
		return 0, 0
	}
	kinds := [][]string{{"app"}, {"init:setup", "app"}, {"sidecar:proxy", "flaky"}, {"job"}, {"init:setup", "sidecar:proxy", "app", "flaky"}}
	var pods []*corev1.Pod
	for i := range 200 {
		pod := podOf(fmt.Sprintf("pod-%d", i), kinds[rnd.IntN(len(kinds))]...)
		if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "job" }) {
			pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		}
		pods = append(pods, pod)
		w.set(Desired{Pod: pod})
		time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
		if _, ok := w.faults.Take(time.Now(), fault.KillAgent); ok {
			w.restart(true)
		}
	}
	time.Sleep(time.Minute)
	goes := func(i int) bool { return i%3 == 0 }
	for i, pod := range pods {
		if goes(i) {
			w.delete(pod)
		}
	}
	if _, ok := w.faults.Take(time.Now(), fault.KillAgent); ok {
		w.restart(true)
	}
	time.Sleep(30 * time.Minute)
	for i, pod := range pods {
		status := w.status(pod.UID)
		job := pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
		switch {
		case goes(i):
			if !w.isFinished(pod.UID) {
				t.Errorf("%s is not gone", pod.Name)
			}
		case job:
			if status.Phase != corev1.PodSucceeded {
				t.Errorf("%s is %s", pod.Name, status.Phase)
			}
		case !w.ready(pod.UID):
			t.Errorf("%s is not ready: %+v", pod.Name, status)
		}
		if t.Failed() && i > 20 {
			break // enough said
		}
	}
	for _, pod := range pods {
		w.delete(pod)
	}
	w.waitFor("gone", 10*time.Minute, func() bool {
		return len(w.workers.Known()) == 0
	})
	if refs, err := w.rt.Pods(t.Context()); err != nil || len(refs) != 0 {
		t.Errorf("left %d pods, %v", len(refs), err)
	}
}

// randomFaults draws a handful of faults.
func randomFaults(rnd *rand.Rand) []fault.Fault {
	actions := []lifecycle.ActionKind{
		lifecycle.PrepareVolumes, lifecycle.CreateSandbox, lifecycle.PullImage, lifecycle.StartContainer,
		lifecycle.RemoveContainer, lifecycle.StopSandbox, lifecycle.RemoveSandbox, lifecycle.RemovePod,
	}
	var faults []fault.Fault
	for range 12 {
		f := fault.Fault{After: time.Duration(rnd.IntN(60)) * time.Second, Times: 1 + rnd.IntN(5)}
		action := actions[rnd.IntN(len(actions))]
		switch rnd.IntN(6) {
		case 0, 1:
			f.Kind, f.Action = fault.Fail, action
		case 2:
			f.Kind, f.Action = fault.LateEffect, lifecycle.StartContainer
		case 3:
			f.Kind = fault.LoseEvent
			f.Times = 1 + rnd.IntN(50)
		case 4:
			f.Kind, f.Times = fault.RuntimeGone, 0
			f.For = time.Duration(1+rnd.IntN(60)) * time.Second
		case 5:
			f.Kind, f.Times = fault.DiskFull, 0
			f.For = time.Duration(1+rnd.IntN(60)) * time.Second
		}
		faults = append(faults, f)
	}
	return append(faults, fault.Fault{Kind: fault.KillAgent, After: 5 * time.Second}, fault.Fault{Kind: fault.KillAgent, After: 65 * time.Second})
}

// A preStop hook that an ending agent cuts off is begun again by the next one.
func TestHooksAreBegunAgain(t *testing.T) {
	for _, kill := range []bool{false, true} {
		inBubble(t, "", func(t *testing.T, w *world) {
			var begun, done atomic.Int64
			w.hook = func(ctx context.Context, _ hooks.Hook) error {
				begun.Add(1)
				select {
				case <-time.After(5 * time.Second):
					done.Add(1)
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			pod := podOf("web", "app")
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
			w.set(Desired{Pod: pod})
			w.waitFor("ready", time.Minute, func() bool { return w.ready(pod.UID) })
			w.delete(pod)
			time.Sleep(2 * time.Second)
			w.restart(kill)
			w.waitFor("finished", 10*time.Second, func() bool { return w.isFinished(pod.UID) })
			if begun.Load() != 2 || done.Load() != 1 {
				t.Errorf("kill=%v: the hook was begun %d times and ended %d times", kill, begun.Load(), done.Load())
			}
		})
	}
}

// An agent that ends while its worker is busy does not take what it cut off for
// failures: a postStart hook that has failed would stop its container.
func TestWhatAnEndingAgentCutsOffHasNotFailed(t *testing.T) {
	for range 20 { // which of two signals a worker takes first is chance
		inBubble(t, "", func(t *testing.T, w *world) {
			var hanging atomic.Bool
			hanging.Store(true)
			w.hook = func(ctx context.Context, _ hooks.Hook) error {
				if !hanging.Load() {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
			pod := podOf("web", "app")
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
			w.set(Desired{Pod: pod})
			time.Sleep(time.Minute)
			w.busy.Store(true)
			w.workers.Poke(pod.UID)
			time.Sleep(time.Second)
			w.mu.Lock()
			stop := w.stop
			w.mu.Unlock()
			stop()
			w.busy.Store(false)
			hanging.Store(false)
			w.begin()
			w.waitFor("ready", time.Minute, func() bool { return w.ready(pod.UID) })
			if n := w.rt.Runs(pod.UID, "app"); n != 1 {
				t.Errorf("the container was started %d times", n)
			}
		})
	}
}

// Histories are kept in the database, and those of terminal pods are known.
func TestHistoriesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	open := func() (*db.DB, *Histories) {
		d, err := db.Open(db.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return d, NewHistories(d)
	}
	d, h := open()
	want := lifecycle.History{SandboxAttempts: 3, Status: &corev1.PodStatus{Phase: corev1.PodSucceeded}}
	if err := h.Save("u1", want); err != nil {
		t.Fatal(err)
	}
	if err := h.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, h = open()
	defer d.Close()
	got, err := h.Load("u1")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, (-want +got)\n%s", err, diff)
	}
	if !h.Terminal("u1") || h.Terminal("u2") {
		t.Error("terminal pods are not known")
	}
	h.Delete("u1")
	if got, err := h.Load("u1"); err != nil || !cmp.Equal(got, lifecycle.History{}) {
		t.Errorf("after its deletion: %+v, %v", got, err)
	}
	d.Put(historyBucket, "u3", []byte("{"))
	if _, err := h.Load("u3"); !errors.Is(err, ErrTorn) {
		t.Errorf("a torn history was read: %v", err)
	}
}
