package podworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/format"
	"github.com/berth-run/berth/internal/hooks"
	"github.com/berth-run/berth/internal/lifecycle"
)

func TestPodComesUpAndGoes(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		pod := podOf("web", "app")
		w.set(Desired{Pod: pod})
		w.waitFor("ready", time.Minute, func() bool { return w.ready(pod.UID) })
		w.delete(pod)
		w.waitFor("finished", time.Minute, func() bool { return w.isFinished(pod.UID) })
		want := []string{"PrepareVolumes", "CreateSandbox #0", "PullImage app#0", "StartContainer app#0", "StopContainer app#0",
			"RemoveContainer app#0", "StopSandbox s1", "RemoveSandbox s1", "RemovePod"}
		got := slices.DeleteFunc(w.rt.Log(), func(s string) bool { return !slices.Contains(want, s) })
		for _, must := range []string{"PrepareVolumes", "CreateSandbox #0", "PullImage app#0", "StartContainer app#0", "StopContainer app#0", "RemovePod"} {
			if !slices.Contains(got, must) {
				t.Errorf("%s is missing in %q", must, got)
			}
		}
		if h, err := w.records.Load(pod.UID); err != nil || !cmp.Equal(h, lifecycle.History{}) {
			t.Errorf("the history of a deleted pod is kept: %+v, %v", h, err)
		}
		if err := w.workers.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A pod is deleted while its container's start hangs. The start is cancelled
// but takes effect all the same, so the container must still be stopped before
// the sandbox goes.
func TestDeletedDuringSlowStart(t *testing.T) {
	inBubble(t, "slow(StartContainer, 10m); late-effect(StartContainer)", func(t *testing.T, w *world) {
		pod := podOf("web", "app")
		w.set(Desired{Pod: pod})
		time.Sleep(5 * time.Minute) // the sandbox is up, the start hangs
		w.delete(pod)
		w.waitFor("finished", time.Minute, func() bool { return w.isFinished(pod.UID) })
		log := w.rt.Log()
		if !slices.ContainsFunc(log, func(s string) bool { return strings.HasPrefix(s, "StopContainer app") }) {
			t.Errorf("the late container was not stopped: %q", log)
		}
		if n := len(log) - 1; log[n] != "RemovePod" {
			t.Errorf("the end is %q", log)
		}
	})
}

// A pull that is no longer wanted is cancelled at once.
func TestDeletedDuringSlowPull(t *testing.T) {
	inBubble(t, "slow(PullImage, 1h)", func(t *testing.T, w *world) {
		pod := podOf("web", "app")
		w.set(Desired{Pod: pod})
		time.Sleep(time.Minute)
		w.delete(pod)
		w.waitFor("finished", time.Second, func() bool { return w.isFinished(pod.UID) })
	})
}

func TestLostEventsOnlyDelay(t *testing.T) {
	inBubble(t, "lose-event(1000)", func(t *testing.T, w *world) {
		pod := podOf("web", "app")
		w.set(Desired{Pod: pod})
		w.waitFor("ready", time.Second, func() bool { return w.ready(pod.UID) })
		w.rt.Kill(pod.UID, "app", 1)
		time.Sleep(2 * time.Minute)
		if runs := w.rt.Runs(pod.UID, "app"); runs != 2 {
			t.Errorf("app ran %d times after its lost exit, want 2", runs)
		}
	})
}

// A slow preStop hook of one pod delays neither another pod nor, beyond the
// grace period, its own.
func TestSlowHookDelaysNobody(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		cut := make(chan time.Duration, 1)
		w.hook = func(ctx context.Context, h hooks.Hook) error {
			began := time.Now()
			<-ctx.Done()
			cut <- time.Since(began)
			return ctx.Err()
		}
		slow := podOf("slow", "app")
		slow.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "inf"}}},
		}
		w.set(Desired{Pod: slow})
		w.waitFor("ready", time.Second, func() bool { return w.ready(slow.UID) })
		w.delete(slow)
		time.Sleep(time.Second)
		quick := podOf("quick", "app")
		w.set(Desired{Pod: quick})
		w.waitFor("ready", time.Second, func() bool { return w.ready(quick.UID) })
		w.delete(quick)
		w.waitFor("finished", time.Second, func() bool { return w.isFinished(quick.UID) })
		w.waitFor("finished", 35*time.Second, func() bool { return w.isFinished(slow.UID) })
		if took := <-cut; took > 33*time.Second {
			t.Errorf("the hook ran for %s", took)
		}
	})
}

// The runtime is gone for minutes: nothing is decided on what is not known, and
// all goes on when it is back.
func TestRuntimeGoneForMinutes(t *testing.T) {
	inBubble(t, "@10s runtime-gone(5m)", func(t *testing.T, w *world) {
		stays, goes := podOf("stays", "app"), podOf("goes", "app")
		w.set(Desired{Pod: stays})
		w.set(Desired{Pod: goes})
		time.Sleep(11 * time.Second)
		before := w.status(stays.UID)
		w.workers.Poke(stays.UID)
		w.delete(goes)
		late := podOf("late", "app")
		w.set(Desired{Pod: late})
		time.Sleep(4 * time.Minute)
		if diff := cmp.Diff(before, w.status(stays.UID)); diff != "" {
			t.Errorf("the status changed while nothing was known:\n%s", diff)
		}
		time.Sleep(50 * time.Second) // it is back
		w.waitFor("finished", time.Minute, func() bool { return w.isFinished(goes.UID) })
		w.waitFor("ready", time.Minute, func() bool { return w.ready(late.UID) && w.ready(stays.UID) })
		if runs := w.rt.Runs(stays.UID, "app"); runs != 1 {
			t.Errorf("app of the undisturbed pod ran %d times", runs)
		}
	})
}

// On a full disk no container starts, and the status says why; stops go on.
func TestFullDiskStartsNothingAndStopsAll(t *testing.T) {
	inBubble(t, "@10s disk-full(5m)", func(t *testing.T, w *world) {
		old := podOf("old", "app")
		w.set(Desired{Pod: old})
		time.Sleep(20 * time.Second)
		fresh := podOf("fresh", "app")
		w.set(Desired{Pod: fresh})
		time.Sleep(time.Minute)
		if runs := w.rt.Runs(fresh.UID, "app"); runs != 0 {
			t.Error("a container started without a record of it")
		}
		waiting := w.status(fresh.UID).ContainerStatuses[0].State.Waiting
		if waiting == nil || !strings.Contains(waiting.Message, "no space left on device") {
			t.Errorf("the status does not say why: %+v", waiting)
		}
		w.delete(old)
		w.waitFor("finished", time.Second, func() bool { return w.isFinished(old.UID) })
		w.waitFor("ready", 10*time.Minute, func() bool { return w.ready(fresh.UID) })
		if count := w.status(fresh.UID).ContainerStatuses[0].RestartCount; count != 0 {
			t.Errorf("refused starts count as %d restarts", count)
		}
	})
}

// Where the history is not taken at all, nothing starts either.
func TestRefusedHistoryStartsNothing(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		w.records.refuses.Store(true)
		pod := podOf("web", "app")
		w.set(Desired{Pod: pod})
		time.Sleep(10 * time.Minute)
		if n := w.rt.Runs(pod.UID, "app"); n != 0 {
			t.Errorf("the container was started %d times without a record", n)
		}
		w.records.refuses.Store(false)
		w.waitFor("ready", time.Minute, func() bool { return w.ready(pod.UID) })
	})
}

// What happened while the runtime did not answer outlives the agent, too.
func TestHistoryIsKeptWhileTheRuntimeIsGone(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		pod := podOf("web", "app")
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 10}
		w.set(Desired{Pod: pod})
		time.Sleep(time.Minute)
		id := w.status(pod.UID).ContainerStatuses[0].ContainerID
		w.busy.Store(true)
		w.workers.Poke(pod.UID)
		w.workers.Probed(pod.UID, lifecycle.Probed{
			Key:     lifecycle.ProbeKey{ContainerID: strings.TrimPrefix(id, "fake://"), Kind: lifecycle.ReadinessProbe},
			Outcome: lifecycle.Success, At: time.Now(),
		})
		time.Sleep(time.Minute) // the look is given up
		w.busy.Store(false)
		w.restart(true)
		w.waitFor("ready", time.Minute, func() bool { return w.ready(pod.UID) })
	})
}

// Two pods of one name never run at once; the younger waits for the older to be
// gone, unless it is to end itself.
func TestNamesakesTakeTurns(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		w.rt.Linger = 20 * time.Second
		older, younger, third := podOf("web", "app"), podOf("web", "app"), podOf("web", "app")
		w.set(Desired{Pod: older})
		w.waitFor("ready", time.Second, func() bool { return w.ready(older.UID) })
		w.delete(older)
		w.set(Desired{Pod: younger})
		w.set(Desired{Pod: third})
		time.Sleep(10 * time.Second)
		if w.rt.Runs(younger.UID, "app") != 0 || len(w.workers.Waiting()) != 2 {
			t.Error("the younger did not wait")
		}
		w.delete(younger)
		w.waitFor("finished", time.Second, func() bool { return w.isFinished(younger.UID) })
		w.waitFor("ready", 15*time.Second, func() bool { return w.ready(third.UID) })
		if !w.isFinished(older.UID) {
			t.Error("the third started before the older was gone")
		}
	})
}

func TestProbeOutcomesReachTheStatus(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		pod := podOf("web", "app")
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}, PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
		}
		w.set(Desired{Pod: pod})
		time.Sleep(time.Second)
		w.mu.Lock()
		probes := w.probes[pod.UID]
		w.mu.Unlock()
		if len(probes) != 1 || w.ready(pod.UID) {
			t.Fatalf("ready before the probe succeeded, or probes %+v", probes)
		}
		w.workers.Probed(pod.UID, lifecycle.Probed{Key: probes[0].Key, Outcome: lifecycle.Success, At: time.Now()})
		time.Sleep(time.Millisecond)
		if !w.ready(pod.UID) {
			t.Error("not ready after the probe succeeded")
		}
		w.workers.Probed(pod.UID, lifecycle.Probed{Key: probes[0].Key, Outcome: lifecycle.Failure, Message: "refused", At: time.Now()})
		time.Sleep(time.Millisecond)
		if w.ready(pod.UID) {
			t.Error("ready after the probe failed")
		}
	})
}

// The clock is set an hour forward, then two back: waits neither grow nor shrink.
func TestClockJumps(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		w.rt.Behave = func(*corev1.Pod, string, int) (time.Duration, int32) { return time.Second, 1 }
		pod := podOf("web", "app")
		w.set(Desired{Pod: pod})
		time.Sleep(4 * time.Second) // the first restart comes at once, then 10 s of back-off
		if runs := w.rt.Runs(pod.UID, "app"); runs != 2 {
			t.Fatalf("app ran %d times, want 2", runs)
		}
		jump := func(by time.Duration) {
			w.offset.Add(int64(by))
			w.workers.Poke(pod.UID)
		}
		jump(time.Hour)
		time.Sleep(2 * time.Second)
		jump(-2 * time.Hour)
		time.Sleep(3 * time.Second) // the exit is 7 s ago
		if runs := w.rt.Runs(pod.UID, "app"); runs != 2 {
			t.Errorf("app ran %d times before its back-off was over", runs)
		}
		time.Sleep(5 * time.Second)
		if runs := w.rt.Runs(pod.UID, "app"); runs != 3 {
			t.Errorf("app ran %d times after its back-off, want 3", runs)
		}
	})
}

func TestEventsAreTold(t *testing.T) {
	inBubble(t, "fail(CreateSandbox); fail(PullImage)", func(t *testing.T, w *world) {
		w.rt.Behave = func(_ *corev1.Pod, _ string, attempt int) (time.Duration, int32) {
			if attempt < 2 {
				return time.Second, 1
			}
			return 0, 0
		}
		w.hook = func(context.Context, hooks.Hook) error { return errors.New("exit code 3") }
		pod := podOf("web", "app")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
		w.set(Desired{Pod: pod})
		time.Sleep(10 * time.Minute)
		w.delete(pod)
		w.waitFor("finished", time.Minute, func() bool { return w.isFinished(pod.UID) })
		got := w.eventList()
		for _, want := range []string{
			"Warning FailedCreatePodSandBox : Failed to create pod sandbox: CreateSandbox failed by fault",
			`Warning Failed spec.containers{app}: Failed to pull image "image": PullImage failed by fault`,
			"Warning Failed spec.containers{app}: Error: ErrImagePull",
			"Normal Created spec.containers{app}: Container created",
			"Normal Started spec.containers{app}: Container started",
			"Warning BackOff spec.containers{app}: Back-off restarting failed container app in pod " + format.Pod(pod),
			"Normal Killing spec.containers{app}: Stopping container app",
			"Warning FailedPreStopHook spec.containers{app}: exit code 3",
		} {
			if !slices.Contains(got, want) {
				t.Errorf("missing %q", want)
			}
		}
		killing := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return !strings.Contains(s, "Killing") })
		if len(killing) != 1 {
			t.Errorf("told of %d killings: %q", len(killing), killing)
		}
		if t.Failed() {
			t.Logf("told:\n%s", strings.Join(got, "\n"))
		}
	})
}

// A preStop sleep that takes the whole grace period is over with it, and has not
// failed; a command that is cut off has.
func TestPreStopSleepMayTakeTheWholeGracePeriod(t *testing.T) {
	exec := &corev1.ExecAction{Command: []string{"sleep", "3600"}}
	for name, c := range map[string]struct {
		handler corev1.LifecycleHandler
		fails   bool
	}{
		"a sleep as long as the grace period": {corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 30}}, false},
		"a command that is cut off":           {corev1.LifecycleHandler{Exec: exec}, true},
	} {
		inBubble(t, "", func(t *testing.T, w *world) {
			w.hook = func(ctx context.Context, h hooks.Hook) error {
				time.Sleep(time.Millisecond) // as it takes to begin
				return hooks.New(sleeper{}, slog.New(slog.DiscardHandler)).Run(ctx, h)
			}
			pod := podOf("web", "app")
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &c.handler}
			w.set(Desired{Pod: pod})
			w.waitFor("ready", time.Minute, func() bool { return w.ready(pod.UID) })
			began := time.Now()
			w.delete(pod)
			w.waitFor("finished", time.Minute, func() bool { return w.isFinished(pod.UID) })
			if took := time.Since(began); took < 30*time.Second {
				t.Errorf("%s: the pod ended after %s", name, took)
			}
			failed := slices.ContainsFunc(w.eventList(), func(e string) bool { return strings.Contains(e, "FailedPreStopHook") })
			if failed != c.fails {
				t.Errorf("%s: told that it failed: %t\n%s", name, failed, strings.Join(w.eventList(), "\n"))
			}
		})
	}
}

// sleeper runs each command for an hour.
type sleeper struct{}

func (sleeper) Exec(ctx context.Context, _ string, _ []string) ([]byte, int32, error) {
	select {
	case <-time.After(time.Hour):
		return nil, 0, nil
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

// A killing is told of once, also where hooks of several containers come between.
func TestEachKillingIsToldOnce(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		pod := podOf("web", "a", "b")
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
		}
		w.set(Desired{Pod: pod})
		w.waitFor("ready", time.Minute, func() bool { return w.ready(pod.UID) })
		w.delete(pod)
		w.waitFor("finished", time.Minute, func() bool { return w.isFinished(pod.UID) })
		killing := slices.DeleteFunc(w.eventList(), func(s string) bool { return !strings.Contains(s, "Killing") })
		if len(killing) != 2 {
			t.Errorf("told of %d killings of two containers: %q", len(killing), killing)
		}
	})
}

// An orphan is stopped and removed like any pod.
func TestOrphansEnd(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		pod := podOf("web", "app", "sidecar:proxy")
		w.set(Desired{Pod: pod})
		w.waitFor("ready", time.Minute, func() bool { return w.ready(pod.UID) })
		// The agent comes back with neither pod nor history.
		w.mu.Lock()
		clear(w.wanted)
		w.records = newMemRecords(w.faults)
		w.mu.Unlock()
		w.restart(false)
		refs, err := w.rt.Pods(t.Context())
		if err != nil || len(refs) != 1 {
			t.Fatalf("found %v, %v", refs, err)
		}
		w.set(Orphan(refs[0], time.Now(), 10*time.Second))
		w.waitFor("finished", 30*time.Second, func() bool { return w.isFinished(pod.UID) })
		if refs, _ := w.rt.Pods(t.Context()); len(refs) != 0 {
			t.Errorf("left %v", refs)
		}
	})
}

// Evicted while an init container runs and the rest has not started.
func TestStoppedEarly(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		pod := podOf("web", "init:setup", "app")
		w.set(Desired{Pod: pod})
		time.Sleep(time.Second)
		if got := w.rt.Running(pod.UID); !slices.Equal(got, []string{"setup"}) {
			t.Fatalf("running: %q", got)
		}
		w.set(Desired{Pod: pod, Stop: &lifecycle.Stop{Reason: "Evicted", Message: "low on memory", Grace: ptr.To(5 * time.Second)}})
		w.waitFor("failed", time.Second, func() bool { return w.status(pod.UID).Phase == corev1.PodFailed })
		if s := w.status(pod.UID); s.Reason != "Evicted" || w.rt.Runs(pod.UID, "app") != 0 {
			t.Errorf("reason %q, app ran %d times", s.Reason, w.rt.Runs(pod.UID, "app"))
		}
	})
}

func TestConfigSaysAllThatIsMissing(t *testing.T) {
	_, err := New(Config{}, Desired{Pod: podOf("x")})
	for _, field := range []string{"Runtime", "Records", "Hooks", "Probes", "Status"} {
		if !strings.Contains(fmt.Sprint(err), field) {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}
