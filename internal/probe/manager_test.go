package probe

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/berth-run/berth/internal/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeExec answers exec checks by container id. It is safe for concurrent use.
type fakeExec struct {
	// run answers; ctx is the check's.
	run func(ctx context.Context, id string) (output string, code int32, err error)

	mu    sync.Mutex
	began []string // "id after", when each command began
	alive map[string]int
	most  int // commands of one container alive at once
	start time.Time
}

func newFakeExec(run func(ctx context.Context, id string) (string, int32, error)) *fakeExec {
	return &fakeExec{run: run, alive: map[string]int{}, start: time.Now()}
}

func (f *fakeExec) Exec(ctx context.Context, id string, _ []string) ([]byte, int32, error) {
	f.mu.Lock()
	f.began = append(f.began, fmt.Sprintf("%s %s", id, time.Since(f.start)))
	f.alive[id]++
	f.most = max(f.most, f.alive[id])
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.alive[id]--
		f.mu.Unlock()
	}()
	output, code, err := f.run(ctx, id)
	return []byte(output), code, err
}

func (f *fakeExec) begins() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.began)
}

// mostAlive is how many commands of one container were alive at once.
func (f *fakeExec) mostAlive() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

// healthy answers success at once.
func healthy(context.Context, string) (string, int32, error) { return "fine", 0, nil }

// hung ends with its context, as a killed command does.
func hung(ctx context.Context, _ string) (string, int32, error) {
	<-ctx.Done()
	return "", 137, nil
}

// changes collects results as "container kind outcome after: message".
type changes struct {
	mu    sync.Mutex
	list  []string
	start time.Time
}

func (c *changes) add(r Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fmt.Sprintf("%s %s %s %s: %s", r.Key.ContainerID, r.Key.Kind, r.Outcome, r.At.Sub(c.start), r.Message))
}

func (c *changes) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// bed is a Manager that runs, in a bubble of virtual time.
type bed struct {
	*Manager
	exec    *fakeExec
	changes *changes
}

// withBed runs a test with a Manager around the fake.
func withBed(t *testing.T, run func(context.Context, string) (string, int32, error), change func(*Config), test func(t *testing.T, b bed)) {
	synctest.Test(t, func(t *testing.T) {
		b := bed{exec: newFakeExec(run), changes: &changes{start: time.Now()}}
		cfg := Config{Exec: b.exec, Changed: b.changes.add}
		if change != nil {
			change(&cfg)
		}
		var err error
		if b.Manager, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		synctest.Wait()
		test(t, b)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// wantEmpty checks that nothing is left of any probe.
func (b bed) wantEmpty(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := b.lanes[networkLane].waiting() + b.lanes[execLane].waiting()
	if len(b.ending)+len(b.pods)+len(b.due)+waiting != 0 {
		t.Errorf("left over: %d ending, %d pods, %d due, %d waiting", len(b.ending), len(b.pods), len(b.due), waiting)
	}
}

// podOf is a pod with one container, "app".
func podOf(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
	}
}

// execProbe is an exec probe of container id, that started now, with a period
// of 10 s and a time-out of 1 s.
func execProbe(id string, kind lifecycle.ProbeKind) lifecycle.Probe {
	return lifecycle.Probe{
		Key:       lifecycle.ProbeKey{ContainerID: id, Kind: kind},
		Container: "app",
		Spec: &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}},
			PeriodSeconds:    10,
			TimeoutSeconds:   1,
			SuccessThreshold: 1,
			FailureThreshold: 3,
		},
		IP:        "127.0.0.1",
		StartedAt: time.Now(),
	}
}

func compare(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestNewContainerIsCheckedAfterItsInitialDelay(t *testing.T) {
	withBed(t, healthy, nil, func(t *testing.T, b bed) {
		now, later := execProbe("c1", lifecycle.ReadinessProbe), execProbe("c2", lifecycle.ReadinessProbe)
		later.Spec.InitialDelaySeconds = 7
		b.Set(podOf("web"), []lifecycle.Probe{now, later})
		time.Sleep(25 * time.Second)
		compare(t, "checks", b.exec.begins(), "c1 0s", "c2 7s", "c1 10s", "c2 17s", "c1 20s")
		compare(t, "changes", b.changes.got(), "c1 readiness success 0s: fine", "c2 readiness success 7s: fine")
	})
}

// A container that comes up is found ready soon, not a period later; the early
// checks that fail count for nothing.
func TestNewContainerIsAskedEarly(t *testing.T) {
	began := time.Now()
	up := map[string]time.Duration{"soon": 250 * time.Millisecond, "late": 12 * time.Second, "never": time.Hour}
	run := func(_ context.Context, id string) (string, int32, error) {
		if time.Since(began) < up[id] {
			return "not yet", 1, nil
		}
		return "up", 0, nil
	}
	synctest.Test(t, func(*testing.T) { began = time.Now() }) // all bubbles begin at one time
	withBed(t, run, nil, func(t *testing.T, b bed) {
		soon, late := execProbe("soon", lifecycle.ReadinessProbe), execProbe("late", lifecycle.StartupProbe)
		late.Spec.FailureThreshold = 2
		never := execProbe("never", lifecycle.LivenessProbe)
		b.Set(podOf("web"), []lifecycle.Probe{soon, late, never})
		time.Sleep(35 * time.Second)
		compare(t, "changes", b.changes.got(),
			"soon readiness success 300ms: up",
			"late startup failure 10s: not yet",
			"never liveness failure 20s: not yet")
		checks := map[string]int{}
		for _, begin := range b.exec.begins() {
			id, _, _ := strings.Cut(begin, " ")
			checks[id]++
		}
		// Liveness is not asked early: it can only harm there.
		if checks["never"] != 3 || checks["late"] != 8 || checks["soon"] != 6 {
			t.Errorf("checks: %v", checks)
		}
	})
}

func TestLivenessFailsOnceAndIsNotAskedAgain(t *testing.T) {
	sick := func(context.Context, string) (string, int32, error) { return "sick", 1, nil }
	withBed(t, sick, nil, func(t *testing.T, b bed) {
		b.Set(podOf("web"), []lifecycle.Probe{execProbe("c1", lifecycle.LivenessProbe)})
		time.Sleep(time.Hour)
		compare(t, "checks", b.exec.begins(), "c1 0s", "c1 10s", "c1 20s")
		compare(t, "changes", b.changes.got(), "c1 liveness failure 20s: sick")
	})
}

// kubernetes#141155: what was true of the old container is not of the new.
func TestRestartedContainerStartsAnew(t *testing.T) {
	withBed(t, healthy, nil, func(t *testing.T, b bed) {
		pod := podOf("web")
		b.Set(pod, []lifecycle.Probe{execProbe("c1", lifecycle.StartupProbe)})
		time.Sleep(15 * time.Second)
		b.Set(pod, []lifecycle.Probe{execProbe("c1", lifecycle.ReadinessProbe)})
		time.Sleep(5 * time.Second)
		b.Set(pod, []lifecycle.Probe{execProbe("c2", lifecycle.StartupProbe)})
		time.Sleep(5 * time.Second)
		compare(t, "changes", b.changes.got(),
			"c1 startup success 0s: fine", "c1 readiness success 15s: fine", "c2 startup success 20s: fine")
	})
}

func TestRememberedOutcomesAreNotReportedAgain(t *testing.T) {
	withBed(t, healthy, nil, func(t *testing.T, b bed) {
		ready, started := execProbe("c1", lifecycle.ReadinessProbe), execProbe("c1", lifecycle.StartupProbe)
		ready.Last, started.Last = lifecycle.Success, lifecycle.Success
		b.Set(podOf("web"), []lifecycle.Probe{ready, started})
		time.Sleep(11 * time.Second)
		compare(t, "checks", b.exec.begins(), "c1 0s", "c1 10s") // readiness only
		compare(t, "changes", b.changes.got())
	})
}

func TestFirstChecksAreSpreadOnlyForContainersFromBefore(t *testing.T) {
	withBed(t, healthy, nil, func(t *testing.T, b bed) {
		var want []lifecycle.Probe
		for i := range 100 {
			p := execProbe(fmt.Sprintf("old%d", i), lifecycle.ReadinessProbe)
			p.StartedAt = time.Now().Add(-time.Hour)
			want = append(want, p)
		}
		b.Set(podOf("web"), append(want, execProbe("new", lifecycle.ReadinessProbe)))
		synctest.Wait()
		compare(t, "checks at once", b.exec.begins(), "new 0s")
		time.Sleep(5 * time.Second)
		if n := len(b.exec.begins()); n < 30 || n > 70 {
			t.Errorf("%d of 100 checks in half the period", n)
		}
		time.Sleep(4999 * time.Millisecond)
		if n := len(b.exec.begins()); n != 101 {
			t.Errorf("%d checks in the first period, want each once", n)
		}
		// A probe of an old container that comes to be wanted later isn't delayed.
		late := execProbe("late", lifecycle.ReadinessProbe)
		late.StartedAt = time.Now().Add(-time.Hour)
		time.Sleep(time.Second)
		b.Set(podOf("db"), []lifecycle.Probe{late})
		synctest.Wait()
		if got := b.exec.begins(); !slices.Contains(got, "late 10.999s") {
			t.Errorf("the late one is delayed: %q", got[len(got)-1])
		}
	})
}

// 100 commands hang until their time-out of 30 s while 8 may begin at once.
func TestHangingTargetsDelayNobody(t *testing.T) {
	run := func(ctx context.Context, id string) (string, int32, error) {
		if strings.HasPrefix(id, "hung") {
			return hung(ctx, id)
		}
		return healthy(ctx, id)
	}
	withBed(t, run, func(c *Config) { c.ExecWorkers = 8 }, func(t *testing.T, b bed) {
		for i := range 100 {
			p := execProbe(fmt.Sprintf("hung%d", i), lifecycle.LivenessProbe)
			p.Spec.TimeoutSeconds = 30
			b.Set(podOf(fmt.Sprintf("bad%d", i)), []lifecycle.Probe{p})
		}
		time.Sleep(time.Second) // all hang: 13 rounds of 50 ms
		b.Set(podOf("web"), []lifecycle.Probe{execProbe("c1", lifecycle.ReadinessProbe)})
		synctest.Wait()
		compare(t, "changes", b.changes.got(), "c1 readiness success 1s: fine")
		time.Sleep(50 * time.Second)
		if b.exec.mostAlive() != 1 {
			t.Errorf("%d commands of one probe at once", b.exec.mostAlive())
		}
	})
}

// All are due at the same moment, those that hang and those that answer.
func TestTargetsKnownToHangGoLast(t *testing.T) {
	run := func(ctx context.Context, id string) (string, int32, error) {
		if strings.HasPrefix(id, "good") {
			return healthy(ctx, id)
		}
		return hung(ctx, id)
	}
	withBed(t, run, func(c *Config) { c.ExecWorkers = 4 }, func(t *testing.T, b bed) {
		for i := range 400 {
			p := execProbe(fmt.Sprintf("hung%d", i), lifecycle.ReadinessProbe)
			if i%20 == 10 {
				p.Key.ContainerID = fmt.Sprint("good", i)
			}
			p.Spec.PeriodSeconds, p.Spec.TimeoutSeconds = 60, 20
			b.Set(podOf(p.Key.ContainerID), []lifecycle.Probe{p})
		}
		time.Sleep(10*time.Minute - time.Second)
		total := 0
		for _, begin := range b.exec.begins() {
			id, at, _ := strings.Cut(begin, " ")
			after, err := time.ParseDuration(at)
			if err != nil {
				t.Fatal(err)
			}
			// The first ones don't know yet who hangs.
			if strings.HasPrefix(id, "good") && after > time.Minute && after%time.Minute > 500*time.Millisecond {
				t.Errorf("%s is checked at %s", id, at)
			}
			total++
		}
		if total != 400*10 {
			t.Errorf("%d checks in ten periods", total)
		}
	})
}

func TestEveryFourthPlaceIsForTheSlow(t *testing.T) {
	l := lane{limit: 100, slowAfter: time.Second}
	for range 12 {
		l.add(&runner{})
		l.add(&runner{slow: true})
	}
	var order strings.Builder
	for l.waiting() > 0 {
		if r, ok := l.next(); ok && r.slow {
			order.WriteByte('s')
		} else {
			order.WriteByte('q')
		}
	}
	if want := "qqqsqqqsqqqsqqqsssssssss"; order.String() != want {
		t.Errorf("got %s, want %s", order.String(), want)
	}
}

func TestOnlySoManyChecksBeginAtOnce(t *testing.T) {
	slowly := func(ctx context.Context, _ string) (string, int32, error) {
		time.Sleep(10 * time.Millisecond)
		return "", 0, nil
	}
	withBed(t, slowly, func(c *Config) { c.ExecWorkers = 2 }, func(t *testing.T, b bed) {
		for i := range 10 {
			b.Set(podOf(fmt.Sprint(i)), []lifecycle.Probe{execProbe(fmt.Sprint(i), lifecycle.ReadinessProbe)})
		}
		time.Sleep(time.Second)
		var times []string
		for _, b := range b.exec.begins() {
			_, at, _ := strings.Cut(b, " ")
			times = append(times, at)
		}
		compare(t, "checks", times, "0s", "0s", "10ms", "10ms", "20ms", "20ms", "30ms", "30ms", "40ms", "40ms")
	})
}

func TestTimeOutIsAFailure(t *testing.T) {
	withBed(t, hung, nil, func(t *testing.T, b bed) {
		p := execProbe("c1", lifecycle.LivenessProbe)
		p.Spec.FailureThreshold = 2
		b.Set(podOf("web"), []lifecycle.Probe{p})
		time.Sleep(time.Minute)
		compare(t, "checks", b.exec.begins(), "c1 0s", "c1 10s")
		compare(t, "changes", b.changes.got(), "c1 liveness failure 11s: command timed out after 1s: check")
	})
}

// The command ignores its kill for a while: no second one begins meanwhile, and
// the probe fails all the same.
func TestUnkillableCommandFailsWithoutASecondOne(t *testing.T) {
	stuck := func(context.Context, string) (string, int32, error) {
		time.Sleep(65 * time.Second)
		return "", 0, nil
	}
	withBed(t, stuck, nil, func(t *testing.T, b bed) {
		p := execProbe("c1", lifecycle.ReadinessProbe)
		p.Last = lifecycle.Success
		b.Set(podOf("web"), []lifecycle.Probe{p})
		time.Sleep(64 * time.Second)
		compare(t, "checks", b.exec.begins(), "c1 0s")
		compare(t, "changes", b.changes.got(), "c1 readiness failure 20s: the check before still has not ended after its time-out")
		time.Sleep(7 * time.Second)
		compare(t, "after the first has ended", b.exec.begins(), "c1 0s", "c1 1m10s")
		time.Sleep(2 * time.Minute)
		if b.exec.mostAlive() != 1 {
			t.Errorf("%d commands at once", b.exec.mostAlive())
		}
	})
}

// Dropped and wanted again while its command still dies: the new one waits.
func TestWantedAgainWaitsForTheLastCheckToEnd(t *testing.T) {
	dying := func(ctx context.Context, _ string) (string, int32, error) {
		<-ctx.Done()
		time.Sleep(3 * time.Second)
		return "old", 0, nil
	}
	withBed(t, dying, nil, func(t *testing.T, b bed) {
		pod := podOf("web")
		want := []lifecycle.Probe{execProbe("c1", lifecycle.ReadinessProbe)}
		want[0].Spec.TimeoutSeconds = 9
		b.Set(pod, want)
		time.Sleep(time.Second)
		b.Set(pod, nil)
		b.Set(pod, want)
		b.Set(pod, nil)
		b.Set(pod, want)
		time.Sleep(5 * time.Second)
		compare(t, "checks", b.exec.begins(), "c1 0s", "c1 4s")
		compare(t, "changes", b.changes.got())
		b.Forget(pod.UID)
		time.Sleep(time.Minute)
		compare(t, "checks", b.exec.begins(), "c1 0s", "c1 4s")
		b.wantEmpty(t)
	})
}

func TestChecksThatCannotBeMadeCountForNothing(t *testing.T) {
	broken := func(context.Context, string) (string, int32, error) { return "", 0, errors.New("runtime is away") }
	withBed(t, broken, nil, func(t *testing.T, b bed) {
		pod := podOf("web")
		p := execProbe("c1", lifecycle.LivenessProbe)
		nameless := execProbe("c2", lifecycle.LivenessProbe)
		nameless.Spec.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}
		nameless.Spec.TCPSocket.Port.Type, nameless.Spec.TCPSocket.Port.StrVal = 1, "web"
		b.Set(pod, []lifecycle.Probe{p, nameless})
		time.Sleep(5 * time.Second)
		compare(t, "three tries", b.exec.begins(), "c1 0s", "c1 0s", "c1 0s")
		time.Sleep(time.Hour)
		compare(t, "changes", b.changes.got())
		last := b.Recent(pod.UID, nameless.Key)
		if len(last) != ringSize || !last[0].Void || last[0].Output != `cannot find port "web" among the container's ports` {
			t.Errorf("recent checks %+v", last)
		}
	})
}

func TestRecentChecksOutliveTheirProbe(t *testing.T) {
	n := 0
	run := func(context.Context, string) (string, int32, error) { n++; return fmt.Sprint("no ", n), 1, nil }
	withBed(t, run, nil, func(t *testing.T, b bed) {
		pod := podOf("web")
		p := execProbe("c1", lifecycle.ReadinessProbe)
		p.Last = lifecycle.Failure
		b.Set(pod, []lifecycle.Probe{p})
		time.Sleep(95 * time.Second) // 10 checks
		outputs := func() (out []string) {
			for _, c := range b.Recent(pod.UID, p.Key) {
				out = append(out, c.Output)
			}
			return out
		}
		compare(t, "recent", outputs(), "no 3", "no 4", "no 5", "no 6", "no 7", "no 8", "no 9", "no 10")
		b.Set(pod, []lifecycle.Probe{execProbe("c2", lifecycle.ReadinessProbe)})
		compare(t, "recent", outputs(), "no 3", "no 4", "no 5", "no 6", "no 7", "no 8", "no 9", "no 10")
		synctest.Wait()
		var records []string
		for _, r := range b.Records(pod.UID) {
			records = append(records, fmt.Sprintf("%s %s live=%t %d checks", r.Container, r.Key.ContainerID, r.Live, len(r.Checks)))
		}
		compare(t, "records", records, "app c1 live=false 8 checks", "app c2 live=true 1 checks")
		b.Forget(pod.UID)
		compare(t, "recent", outputs())
		if b.Records(pod.UID) != nil {
			t.Error("records of a forgotten pod")
		}
	})
}

func TestPodsWithoutProbesAreForgottenInTheEnd(t *testing.T) {
	withBed(t, healthy, nil, func(t *testing.T, b bed) {
		for i := range 3 * keptPods {
			pod := podOf(fmt.Sprint(i))
			p := execProbe(fmt.Sprint(i), lifecycle.ReadinessProbe)
			b.Set(pod, []lifecycle.Probe{p})
			time.Sleep(time.Millisecond)
			b.Set(pod, nil)
			if i%2 == 0 {
				b.Forget(pod.UID)
			}
			if i%10 == 1 { // it comes back
				b.Set(pod, []lifecycle.Probe{p})
				b.Set(pod, nil)
			}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.pods) > keptPods || len(b.without) > keptPods {
			t.Errorf("%d pods, %d of them without probes", len(b.pods), len(b.without))
		}
	})
}

func TestEachCheckIsObservedInOrder(t *testing.T) {
	var seen []string
	n := 0
	run := func(context.Context, string) (string, int32, error) { n++; return fmt.Sprint(n), int32(n % 2), nil }
	observe := func(c *Config) {
		c.Checked = func(o Observation) {
			seen = append(seen, fmt.Sprintf("%s %t %s", o.Pod.Name, o.Check.OK, o.Check.Output))
		}
	}
	withBed(t, run, observe, func(t *testing.T, b bed) {
		b.Set(podOf("web"), []lifecycle.Probe{execProbe("c1", lifecycle.ReadinessProbe)})
		time.Sleep(25 * time.Second)
		synctest.Wait()
		compare(t, "checks", seen, "web false 1", "web true 2", "web false 3", "web true 4")
	})
}

func TestTimingMayChangeWhileItRuns(t *testing.T) {
	timing := func(c *Config) {
		c.Timing = func(pod *corev1.Pod, _ string, _ lifecycle.ProbeKind, spec *corev1.Probe) Timing {
			timing := SpecTiming(spec)
			if pod.Annotations["fast"] != "" {
				timing.Period = 100 * time.Millisecond
			}
			return timing
		}
	}
	withBed(t, healthy, timing, func(t *testing.T, b bed) {
		want := []lifecycle.Probe{execProbe("c1", lifecycle.ReadinessProbe)}
		b.Set(podOf("web"), want)
		time.Sleep(time.Second)
		fast := podOf("web")
		fast.Annotations = map[string]string{"fast": "1"}
		b.Set(fast, want)
		time.Sleep(350 * time.Millisecond)
		compare(t, "checks", b.exec.begins(), "c1 0s", "c1 1.1s", "c1 1.2s", "c1 1.3s")
	})
}

func TestSetIsCheapWhenNothingChanged(t *testing.T) {
	m, err := New(Config{Exec: newFakeExec(healthy), Changed: func(Result) {}})
	if err != nil {
		t.Fatal(err)
	}
	pod := podOf("web")
	want := []lifecycle.Probe{execProbe("c1", lifecycle.ReadinessProbe), execProbe("c1", lifecycle.LivenessProbe)}
	m.Set(pod, want)
	if n := testing.AllocsPerRun(100, func() { m.Set(pod, want) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestConfigNamesAllProblems(t *testing.T) {
	_, err := New(Config{Workers: -1, ExecWorkers: -2, Spread: -time.Second})
	for _, want := range []string{"Exec is required", "Changed is required", "Workers is -1", "ExecWorkers is -2", "Spread is -1s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// Results wait behind one that is being handed out; when their probe is dropped
// meanwhile, nobody hears of them.
func TestResultsOfDroppedProbesAreDiscarded(t *testing.T) {
	var got []string
	slow := func(c *Config) {
		c.Changed = func(r Result) {
			got = append(got, r.Key.ContainerID)
			time.Sleep(time.Second)
		}
	}
	withBed(t, healthy, slow, func(t *testing.T, b bed) {
		first, second, third := execProbe("c1", lifecycle.ReadinessProbe), execProbe("c2", lifecycle.ReadinessProbe), execProbe("c3", lifecycle.ReadinessProbe)
		b.Set(podOf("a"), []lifecycle.Probe{first})
		synctest.Wait()
		b.Set(podOf("b"), []lifecycle.Probe{second})
		b.Set(podOf("c"), []lifecycle.Probe{third})
		synctest.Wait()
		b.Set(podOf("b"), nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		compare(t, "results", got, "c1", "c3")
	})
}

// Probes come, go and change at random, targets behave at random: no key ever
// has two checks at once, nothing is reported of a dropped probe after a while,
// and nothing is left over.
func TestRandomWishes(t *testing.T) {
	for seed := range uint64(20) {
		run := func(ctx context.Context, id string) (string, int32, error) {
			switch jitter(lifecycle.ProbeKey{ContainerID: fmt.Sprint(id, time.Now().UnixNano(), seed)}, 5) {
			case 0:
				return hung(ctx, id)
			case 1:
				<-ctx.Done()
				time.Sleep(2 * time.Second)
				return "", 1, nil
			case 2:
				return "no", 1, nil
			}
			return "yes", 0, nil
		}
		withBed(t, run, nil, func(t *testing.T, b bed) {
			var group sync.WaitGroup
			for p := range 5 {
				pod := podOf(fmt.Sprint("pod", p))
				group.Go(func() {
					for step := range 200 {
						var want []lifecycle.Probe
						for c := range 4 {
							dice := jitter(lifecycle.ProbeKey{ContainerID: fmt.Sprint(seed, p, step, c)}, 3)
							if dice > 0 {
								probe := execProbe(fmt.Sprint("p", p, "c", c), lifecycle.ReadinessProbe)
								probe.Spec.PeriodSeconds = 1
								want = append(want, probe)
							}
						}
						b.Set(pod, want)
						time.Sleep(300 * time.Millisecond)
					}
					b.Forget(pod.UID)
				})
			}
			group.Wait()
			time.Sleep(5 * time.Second)
			if b.exec.mostAlive() != 1 {
				t.Errorf("seed %d: %d commands of one probe at once", seed, b.exec.mostAlive())
			}
			before := len(b.changes.got())
			time.Sleep(time.Minute)
			if after := len(b.changes.got()); after != before {
				t.Errorf("seed %d: %d changes after the end", seed, after-before)
			}
			b.wantEmpty(t)
		})
	}
}
