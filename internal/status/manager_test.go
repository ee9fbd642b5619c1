package status

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSink records calls as "write web/uid#1 message", where #1 is the n-th
// status of that pod as its Reason says. It is safe for concurrent use.
type fakeSink struct {
	// do is called in each call; nil: it succeeds at once.
	do func(ctx context.Context, call string) error

	mu      sync.Mutex
	calls   []string
	alive   map[types.UID]int
	all     int // calls alive
	most    int // calls alive at once
	version map[types.UID]uint64
	broken  []string // promises that were broken
}

func (f *fakeSink) Write(ctx context.Context, ref Ref, version uint64, status *corev1.PodStatus) error {
	f.mu.Lock()
	if version < f.version[ref.UID] {
		f.broken = append(f.broken, fmt.Sprintf("version %d of %s after %d", version, ref.UID, f.version[ref.UID]))
	}
	f.version[ref.UID] = version
	f.mu.Unlock()
	return f.call(ctx, ref, fmt.Sprintf("write %s/%s %s", ref.Name, ref.API, status.Reason))
}

func (f *fakeSink) Remove(ctx context.Context, ref Ref) error {
	return f.call(ctx, ref, fmt.Sprintf("remove %s/%s", ref.Name, ref.API))
}

func (f *fakeSink) call(ctx context.Context, ref Ref, name string) error {
	f.mu.Lock()
	f.calls = append(f.calls, name)
	f.alive[ref.UID]++
	if f.alive[ref.UID] > 1 {
		f.broken = append(f.broken, "two calls at once for "+string(ref.UID))
	}
	f.all++
	f.most = max(f.most, f.all)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.alive[ref.UID]--
		f.all--
	}()
	if f.do == nil {
		return nil
	}
	return f.do(ctx, name)
}

func (f *fakeSink) got() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// withManager runs a test with a Manager and one fake sink, in virtual time.
func withManager(t *testing.T, do func(ctx context.Context, call string) error, change func(*SinkConfig), test func(t *testing.T, m *Manager, sink *fakeSink)) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{do: do, alive: map[types.UID]int{}, version: map[types.UID]uint64{}}
		cfg := SinkConfig{Name: "fake", Sink: sink, API: true}
		if change != nil {
			change(&cfg)
		}
		m, err := New(Config{Sinks: []SinkConfig{cfg}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		test(t, m, sink)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(sink.broken) > 0 {
			t.Errorf("broken promises: %q", sink.broken)
		}
	})
}

func podOf(name, uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uid)}}
}

func deleted(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	now := metav1.Now()
	pod.DeletionTimestamp = &now
	return pod
}

// status is a running pod's; reason tells it from others.
func status(reason string, ready bool) corev1.PodStatus {
	s := corev1.PodStatus{Phase: corev1.PodRunning, Reason: reason,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}
	if ready {
		s.Conditions[0].Status = corev1.ConditionTrue
	}
	return s
}

func compare(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func slowly(ctx context.Context, _ string) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestOneWriteForEachChange(t *testing.T) {
	withManager(t, nil, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		web := podOf("web", "u1")
		for _, reason := range []string{"a", "a", "b", "b", "a"} {
			m.Set(web, status(reason, false))
			synctest.Wait()
		}
		compare(t, "calls", sink.got(), "write web/u1 a", "write web/u1 b", "write web/u1 a")
	})
}

func TestSlowSinkGetsTheNewestOnly(t *testing.T) {
	withManager(t, slowly, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		web := podOf("web", "u1")
		for i := range 100 {
			m.Set(web, status(fmt.Sprint(i), false))
			time.Sleep(110 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		compare(t, "calls", sink.got()[:3], "write web/u1 0", "write web/u1 9", "write web/u1 18")
		if got := sink.got(); len(got) > 14 || got[len(got)-1] != "write web/u1 99" {
			t.Errorf("%d calls, the last %q", len(got), got[len(got)-1])
		}
	})
}

func TestErrorsAreRetriedWithTheNewest(t *testing.T) {
	failures := 3
	conflict := func(context.Context, string) error {
		if failures--; failures >= 0 {
			return errors.New("409 conflict")
		}
		return nil
	}
	withManager(t, conflict, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		web, db := podOf("web", "u1"), podOf("db", "u2")
		m.Set(web, status("old", false))
		synctest.Wait()
		m.Set(web, status("new", true))
		synctest.Wait()
		compare(t, "no call before its time", sink.got(), "write web/u1 old")
		time.Sleep(time.Second)
		compare(t, "calls", sink.got(), "write web/u1 old", "write web/u1 new", "write web/u1 new", "write web/u1 new")
		m.Set(db, status("x", false))
		synctest.Wait()
		if got := sink.got(); got[len(got)-1] != "write db/u2 x" {
			t.Errorf("got %q", got)
		}
	})
}

func TestFailingPodDelaysNoOther(t *testing.T) {
	bad := func(_ context.Context, call string) error {
		if strings.Contains(call, "bad") {
			return errors.New("500")
		}
		return nil
	}
	withManager(t, bad, func(c *SinkConfig) { c.Parallel = 1 }, func(t *testing.T, m *Manager, sink *fakeSink) {
		m.Set(podOf("bad", "u1"), status("x", false))
		time.Sleep(time.Hour)
		if n := len(sink.got()); n < 100 || n > 200 {
			t.Errorf("%d tries in an hour", n)
		}
		m.Set(podOf("web", "u2"), status("x", false))
		synctest.Wait()
		if got := sink.got(); got[len(got)-1] != "write web/u2 x" {
			t.Errorf("got %q", got[len(got)-1])
		}
	})
}

func TestPodsGoInParallelUpToTheLimit(t *testing.T) {
	withManager(t, slowly, func(c *SinkConfig) { c.Parallel = 10 }, func(t *testing.T, m *Manager, sink *fakeSink) {
		for i := range 40 {
			m.Set(podOf("web", fmt.Sprint(i)), status("x", false))
		}
		time.Sleep(4*time.Second + time.Millisecond)
		if n := len(sink.got()); n != 40 || sink.most != 10 {
			t.Errorf("%d calls, %d at once; want 40, 10 at once", n, sink.most)
		}
	})
}

func TestReadyGoesFirst(t *testing.T) {
	withManager(t, slowly, func(c *SinkConfig) { c.Parallel = 1 }, func(t *testing.T, m *Manager, sink *fakeSink) {
		a, b, c := podOf("a", "a"), podOf("b", "b"), podOf("c", "c")
		m.Set(a, status("1", false))
		m.Set(b, status("1", false))
		m.Set(c, status("1", false))
		time.Sleep(3500 * time.Millisecond)
		m.Set(b, status("2", false)) // b and c wait behind a
		m.Set(a, status("2", false))
		synctest.Wait()
		m.Set(c, status("2", false))
		m.Set(a, status("3", false))
		m.Set(c, status("3", true))
		time.Sleep(10 * time.Second)
		compare(t, "calls", sink.got(), "write a/a 1", "write b/b 1", "write c/c 1", "write b/b 2", "write c/c 3", "write a/a 3")
	})
}

func TestHangingCallIsEndedAndRepeated(t *testing.T) {
	first := true
	hang := func(ctx context.Context, _ string) error {
		if first {
			first = false
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	withManager(t, hang, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		m.Set(podOf("web", "u1"), status("x", false))
		time.Sleep(31 * time.Second)
		compare(t, "calls", sink.got(), "write web/u1 x", "write web/u1 x")
	})
}

func TestDeletedPodIsRemovedOnlyAfterFinished(t *testing.T) {
	failures := 2
	late := func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "remove") {
			if failures--; failures >= 0 {
				return errors.New("late")
			}
		}
		return nil
	}
	withManager(t, late, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		web := podOf("web", "u1")
		m.Set(web, status("run", true))
		time.Sleep(time.Minute)
		m.Set(deleted(web), status("stopping", true))
		time.Sleep(time.Minute)
		m.Set(deleted(web), status("stopped", false))
		m.Finished(deleted(web))
		m.Set(deleted(web), status("too late", false))
		time.Sleep(time.Minute)
		compare(t, "calls", sink.got(), "write web/u1 run", "write web/u1 stopping", "write web/u1 stopped", "remove web/u1", "remove web/u1", "remove web/u1")
		if _, ok := m.Get("u1"); ok || len(m.pods) != 0 {
			t.Error("it is still known")
		}
	})
}

func TestPodThatRanToItsEndStays(t *testing.T) {
	withManager(t, nil, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		job := podOf("job", "u1")
		m.Set(job, status("done", false))
		m.Finished(job)
		synctest.Wait()
		compare(t, "calls", sink.got(), "write job/u1 done")
		if u, ok := m.Get("u1"); !ok || u.Status.Reason != "done" {
			t.Errorf("got %+v", u)
		}
		m.Finished(deleted(job))
		synctest.Wait()
		compare(t, "calls", sink.got(), "write job/u1 done", "remove job/u1")
	})
}

func TestGonePodIsLeftAlone(t *testing.T) {
	gone := func(context.Context, string) error { return fmt.Errorf("cannot patch: %w", ErrGone) }
	withManager(t, gone, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		web := podOf("web", "u1")
		m.Set(web, status("a", false))
		synctest.Wait()
		m.Set(web, status("b", true))
		m.Finished(deleted(web))
		time.Sleep(time.Minute)
		compare(t, "calls", sink.got(), "write web/u1 a")
		if len(m.pods) != 0 {
			t.Error("it is still known")
		}
	})
}

func TestPodMadeAnewNeverGetsTheOldStatus(t *testing.T) {
	withManager(t, slowly, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		old, anew := podOf("web", "u1"), podOf("web", "u2")
		ended := status("old", false)
		ended.Phase, ended.ContainerStatuses = corev1.PodFailed, []corev1.ContainerStatus{{Name: "app", RestartCount: 9}}
		m.Set(old, ended)
		m.Finished(deleted(old))
		m.Set(anew, status("new", false))
		time.Sleep(time.Minute)
		u, ok := m.Get("u2")
		if !ok || u.Status.Phase != corev1.PodRunning || len(u.Status.ContainerStatuses) != 0 {
			t.Errorf("got %+v", u.Status)
		}
		got := sink.got()
		slices.Sort(got)
		compare(t, "calls", got, "remove web/u1", "write web/u1 old", "write web/u2 new")
	})
}

func TestStaticPodIsWrittenToItsMirror(t *testing.T) {
	withManager(t, nil, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		web := podOf("web", "static1")
		web.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		m.Set(web, status("a", false))
		synctest.Wait()
		compare(t, "without a mirror", sink.got())
		m.SetAPI("static1", "mirror1")
		synctest.Wait()
		m.SetAPI("static1", "")
		m.Set(web, status("b", false))
		synctest.Wait()
		compare(t, "the mirror was deleted", sink.got(), "write web/mirror1 a")
		m.SetAPI("static1", "mirror2")
		synctest.Wait()
		m.SetAPI("static1", "mirror3")
		m.SetAPI("nobody", "mirror4")
		synctest.Wait()
		compare(t, "made anew twice", sink.got(), "write web/mirror1 a", "write web/mirror2 b", "write web/mirror3 b")
		m.SetAPI("static1", "")
		m.Finished(deleted(web))
		if len(m.pods) != 0 {
			t.Error("it is still known")
		}
	})
}

func TestGoneMirrorDoesNotStopTheNext(t *testing.T) {
	gone := func(_ context.Context, call string) error {
		if strings.Contains(call, "mirror1") {
			time.Sleep(time.Second)
			return ErrGone
		}
		return nil
	}
	withManager(t, gone, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		web := podOf("web", "static1")
		web.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		m.Set(web, status("a", false))
		m.SetAPI("static1", "mirror1")
		synctest.Wait()
		m.SetAPI("static1", "mirror2") // while the write to the first is under way
		time.Sleep(2 * time.Second)
		compare(t, "calls", sink.got(), "write web/mirror1 a", "write web/mirror2 a")
	})
}

func TestDrainWaitsForTheSinks(t *testing.T) {
	withManager(t, slowly, nil, func(t *testing.T, m *Manager, sink *fakeSink) {
		if err := m.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		began := time.Now()
		m.Set(podOf("web", "u1"), status("a", false))
		m.Finished(deleted(podOf("web", "u1")))
		if err := m.Drain(t.Context()); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("drained after %s: %v", time.Since(began), err)
		}
		m.Set(podOf("web", "u2"), status("a", false))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := m.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestSubscriberGetsEachVersionInOrder(t *testing.T) {
	withManager(t, nil, nil, func(t *testing.T, m *Manager, _ *fakeSink) {
		web, db := podOf("web", "u1"), podOf("db", "u2")
		m.Set(web, status("0", false))
		m.Set(db, status("0", false))
		ctx, cancel := context.WithCancel(t.Context())
		updates := m.Subscribe(ctx)
		for i := range 3 {
			m.Set(web, status(fmt.Sprint(i), false))
		}
		m.Finished(deleted(web))
		var got []string
		version := uint64(0)
		for range 5 {
			u := <-updates
			got = append(got, fmt.Sprintf("%s %s removed=%t skipped=%d", u.Ref.Name, u.Status.Reason, u.Removed, u.Skipped))
			if len(got) > 2 && u.Version <= version {
				t.Errorf("version %d after %d", u.Version, version)
			}
			version = u.Version
		}
		compare(t, "updates", got, "db 0 removed=false skipped=0", "web 0 removed=false skipped=0",
			"web 1 removed=false skipped=0", "web 2 removed=false skipped=0", "web 2 removed=true skipped=0")
		cancel()
		if u, ok := <-updates; ok {
			t.Errorf("got %+v after the end", u)
		}
		if len(m.subs) != 0 {
			t.Error("the subscriber is still known")
		}
	})
}

func TestSlowSubscriberGetsTheNewest(t *testing.T) {
	withManager(t, nil, nil, func(t *testing.T, m *Manager, _ *fakeSink) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		updates := m.Subscribe(ctx)
		const n = 5000
		for i := range n {
			m.Set(podOf("web", "u1"), status(fmt.Sprint(i), false))
			m.Set(podOf("db", "u2"), status(fmt.Sprint(i), false))
		}
		total, received := 0, 0
		var last [2]string
		for last != [2]string{fmt.Sprint(n - 1), fmt.Sprint(n - 1)} {
			u := <-updates
			received++
			total += 1 + u.Skipped
			last[u.Ref.UID[1]-'1'] = u.Status.Reason
		}
		if total != 2*n || received > backlog+10 {
			t.Errorf("%d updates stand for %d, want %d by at most %d", received, total, 2*n, backlog+10)
		}
	})
}

// Pods come, go and change at random while the sink is slow, fails, succeeds
// without saying so, or forgets pods: afterwards it has the newest status of each
// pod that is left, and nothing of the others.
func TestRandomDaysEndWell(t *testing.T) {
	for seed := range uint64(50) {
		state := map[string]string{}
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(seed, 1))
		dice := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return rng.IntN(n)
		}
		stormy := true
		var faults *fault.Injector // set before the first call
		do := func(ctx context.Context, call string) error {
			mu.Lock()
			calm := !stormy
			mu.Unlock()
			fate := dice(6)
			if calm {
				fate = 0
			}
			if fate == 1 || fate == 2 {
				time.Sleep(time.Duration(dice(3000)) * time.Millisecond)
			}
			if fate == 3 {
				return errors.New("500")
			}
			if faults.Active(time.Now(), fault.APIGone) {
				return errors.New("connection refused")
			}
			if _, conflict := faults.Take(time.Now(), fault.APIConflict); conflict {
				return errors.New("409 conflict")
			}
			f := strings.Fields(call)
			mu.Lock()
			if f[0] == "write" {
				state[f[1]] = f[2]
			} else {
				delete(state, f[1])
			}
			mu.Unlock()
			if fate == 4 {
				return errors.New("lost answer")
			}
			return nil
		}
		withManager(t, do, func(c *SinkConfig) { c.Parallel = 3 }, func(t *testing.T, m *Manager, sink *fakeSink) {
			var list []fault.Fault
			for range 5 {
				at, lasts := time.Duration(dice(120))*time.Second, time.Duration(1+dice(30))*time.Second
				list = append(list, fault.Fault{Kind: fault.APIConflict, After: at, Times: 1 + dice(5)},
					fault.Fault{Kind: fault.APIGone, After: at, For: lasts})
			}
			faults = fault.NewInjector(time.Now(), list)
			want := map[string]string{}
			uids := 0
			var pods [6]*corev1.Pod
			for step := range 500 {
				i := dice(len(pods))
				switch {
				case pods[i] == nil:
					uids++
					pods[i] = podOf(fmt.Sprint("pod", i), fmt.Sprint("u", uids))
				case dice(10) == 0:
					m.Finished(deleted(pods[i]))
					delete(want, fmt.Sprintf("pod%d/%s", i, pods[i].UID))
					pods[i] = nil
				default:
					reason := fmt.Sprint(step)
					m.Set(pods[i], status(reason, dice(2) == 0))
					want[fmt.Sprintf("pod%d/%s", i, pods[i].UID)] = reason
				}
				if dice(3) == 0 {
					time.Sleep(time.Duration(dice(500)) * time.Millisecond)
				}
			}
			mu.Lock()
			stormy = false
			mu.Unlock()
			if err := m.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, state); diff != "" {
				t.Errorf("seed %d, faults %q (-want +got):\n%s", seed, fault.Format(list), diff)
			}
		})
	}
}

func TestConfigNamesAllProblems(t *testing.T) {
	_, err := New(Config{Sinks: []SinkConfig{{Parallel: -1, Timeout: -1}}})
	for _, want := range []string{"Sinks[0] needs a Name", "Parallel is -1", "Timeout is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
