package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/nodeapi"
)

// told is what a plain view says of one pod.
type told struct {
	out bytes.Buffer
	v   *plainView
	p   *podState
	b   *board
}

// tell begins with a pod in parsePod's words, of which nothing was heard yet.
func tell(t *testing.T, text string) (h *told, status *corev1.PodStatus) {
	t.Helper()
	h = &told{p: parsePod(t, "web", text)}
	h.v = &plainView{out: newOutput(&h.out), errOut: &h.out, teller: newTeller()}
	h.p.since = epoch
	h.b = &board{pods: []*podState{h.p}, byUID: map[types.UID]*podState{h.p.ref.UID: h.p}}
	status, h.p.status = h.p.status, nil
	return h, status
}

func (h *told) hear(after time.Duration, u agent.Update) {
	u.Time, u.Pod = epoch.Add(after), h.p.ref
	p, before := h.b.take(u)
	h.v.update(u, p, before)
}

func (h *told) status(after time.Duration, s *corev1.PodStatus) {
	h.hear(after, agent.Update{Kind: agent.StatusUpdate, Status: s.DeepCopy()})
}

func (h *told) unhealthy(after time.Duration, message string) {
	h.hear(after, agent.Update{Kind: agent.EventUpdate, Event: &agent.Event{
		Type: corev1.EventTypeWarning, Reason: "Unhealthy", Container: "app", Message: message,
	}})
}

func (h *told) expect(t *testing.T, want string) {
	t.Helper()
	h.v.end()
	if diff := cmp.Diff(want, h.out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// end is how a container ended, so long after the epoch.
func end(after time.Duration, code int32, message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{
		ContainerID: fmt.Sprint("berth://", after), ExitCode: code, Reason: "Error", Message: message,
		StartedAt: metav1.NewTime(epoch.Add(after - time.Second)), FinishedAt: metav1.NewTime(epoch.Add(after)),
	}
}

func TestAPodThatWasThereIsToldAsItIs(t *testing.T) {
	h, s := tell(t, "Running app=ready proxy=wait:CrashLoopBackOff:back-off:10s:restarting:failed")
	started := metav1.NewTime(epoch.Add(-time.Hour))
	s.StartTime, s.PodIP = &started, "10.0.0.2"
	app, proxy := &s.ContainerStatuses[0], &s.ContainerStatuses[1]
	app.RestartCount, app.LastTerminationState.Terminated = 2, end(-time.Minute, 3, "the cable was pulled")
	proxy.RestartCount, proxy.LastTerminationState.Terminated = 1, end(-time.Second, 1, "no route")
	h.status(-time.Second, s)
	for i := range 3 {
		h.v.log(h.p, nodeapi.LogLine{Container: "app", Attempt: i, Text: fmt.Appendf(nil, "of start %d", i)})
	}
	h.v.log(h.p, nodeapi.LogLine{Container: "proxy", Attempt: 1, Text: []byte("of start 1")})
	h.status(time.Second, s)
	// From here on it is told what happens.
	proxy.RestartCount, proxy.State, proxy.Ready = 2, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, true
	s.Conditions[0].Status = corev1.ConditionTrue
	h.status(2*time.Second, s)
	app.State = corev1.ContainerState{Terminated: end(3*time.Second, 3, "the cable was pulled")}
	h.status(3*time.Second, s)
	h.expect(t, `web: CrashLoopBackOff already; started 60m ago, 3 restarts
web/app: running; before that exit code 3: the cable was pulled
web/proxy: CrashLoopBackOff: exit code 1: no route (back-off 10s)
web/app | of start 0
web/app | of start 1
web/app | of start 2
web/proxy | of start 1
web/proxy: running again, restart 2
web: ready at 10.0.0.2
web/app: exit code 3
`)
}

// A pod is there already by what the agent had told of it, or when it started.
func TestWhichPodsWereThereBefore(t *testing.T) {
	for name, c := range map[string]struct {
		heard, started time.Duration
		want           bool
	}{
		"it is new":                            {time.Second, time.Second, false},
		"it started in the second of the run":  {time.Millisecond, 0, false},
		"the agent knew it":                    {-time.Millisecond, 0, true},
		"this agent is new, and it knew it":    {time.Second, -time.Second, true},
		"it is waiting, and the agent knew it": {-time.Second, -1, true},
	} {
		h, s := tell(t, "Running app=ready")
		h.p.since = epoch.Add(500 * time.Millisecond)
		if c.started != -1 {
			at := metav1.NewTime(epoch.Add(c.started))
			s.StartTime = &at
		}
		h.status(500*time.Millisecond+c.heard, s)
		if h.p.joined != c.want {
			t.Errorf("%s: %t, want %t", name, h.p.joined, c.want)
		}
	}
}

func TestALongTextIsToldOnceUntilItChanges(t *testing.T) {
	long := "panic: " + strings.Repeat("the database does not answer, ", 8)
	h, s := tell(t, "Running app=run")
	c := &s.ContainerStatuses[0]
	h.status(0, s)
	for i, text := range []string{long, long, long, "panic: another", long} {
		at := time.Duration(10*i+5) * time.Second
		how := end(at, 1, text)
		c.State = corev1.ContainerState{Terminated: how}
		h.status(at, s)
		c.State, c.LastTerminationState = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container",
		}}, corev1.ContainerState{Terminated: how}
		h.status(at, s)
		c.RestartCount++
		c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		h.status(at+time.Second, s)
	}
	cycle := func(restart int, text string) string {
		return fmt.Sprintf("web/app: exit code 1%s\nweb/app: CrashLoopBackOff: exit code 1 (back-off 10s)\nweb/app: running again, restart %d\n", text, restart)
	}
	long = brief(long)
	h.expect(t, "web/app: running\n"+cycle(1, ": "+long)+cycle(2, "")+cycle(3, "")+cycle(4, ": panic: another")+cycle(5, ": "+long))
}

func TestProbesThatFailAreToldAtOnceAndThinnedOut(t *testing.T) {
	h, s := tell(t, "Running app=run")
	s.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(epoch)
	h.status(0, s)
	for i := range 200 {
		h.unhealthy(time.Duration(i)*time.Second, "Readiness probe failed: HTTP 503")
		if i == 3 {
			h.unhealthy(3*time.Second, "Liveness probe failed: read tcp 10.0.0.1:41234->10.0.0.2:80: reset")
			h.unhealthy(4*time.Second, "Liveness probe failed: read tcp 10.0.0.1:41235->10.0.0.2:80: reset")
		}
	}
	s.ContainerStatuses[0].Ready, s.Conditions[0].Status = true, corev1.ConditionTrue
	h.status(201*time.Second, s)
	h.unhealthy(202*time.Second, "Readiness probe failed: HTTP 503")
	h.expect(t, `web/app: running
web/app: warning: Unhealthy: Readiness probe failed: HTTP 503
web/app: warning: Unhealthy: Liveness probe failed: read tcp 10.0.0.1:41234->10.0.0.2:80: reset
web/app: warning: Unhealthy, 31 times in 30s: Readiness probe failed: HTTP 503
web/app: warning: Unhealthy, 91 times in 90s: Readiness probe failed: HTTP 503
web: ready
web/app: warning: Unhealthy: Readiness probe failed: HTTP 503
`)
}

// How a container ends that the node kills says nothing of why.
func TestContainersThatAreKilledTellWhatFor(t *testing.T) {
	for name, c := range map[string]struct {
		events []agent.Event
		want   string
	}{
		"its liveness probe fails": {[]agent.Event{
			{Type: "Warning", Reason: "Unhealthy", Message: "Liveness probe failed: HTTP 500"},
			{Type: "Warning", Reason: "Unhealthy", Message: "Readiness probe failed: HTTP 404"},
			{Type: "Normal", Reason: "Killing", Message: "Container app failed liveness probe, will be restarted"},
		}, `web/app: running
web/app: warning: Unhealthy: Liveness probe failed: HTTP 500
web/app: warning: Unhealthy: Readiness probe failed: HTTP 404
web/app: killing: liveness probe failed: HTTP 500
web/app: killed: liveness probe failed
web/app: CrashLoopBackOff: killed: liveness probe failed (back-off 10s)
web/app: running again, restart 1
web/app: completed
`},
		"its startup probe fails, and nobody heard of it": {[]agent.Event{
			{Type: "Normal", Reason: "Killing", Message: "Container app failed startup probe"},
		}, `web/app: running
web/app: killing: startup probe failed
web/app: killed: startup probe failed
web/app: CrashLoopBackOff: killed: startup probe failed (back-off 10s)
web/app: running again, restart 1
web/app: completed
`},
		"its postStart hook fails": {[]agent.Event{
			{Type: "Warning", Reason: "FailedPostStartHook", Message: "postStart hook: exit code 3"},
			{Type: "Normal", Reason: "Killing", Message: "FailedPostStartHook"},
		}, `web/app: running
web/app: warning: FailedPostStartHook: postStart hook: exit code 3
web/app: killing: postStart hook failed: exit code 3
web/app: killed: postStart hook failed
web/app: CrashLoopBackOff: killed: postStart hook failed (back-off 10s)
web/app: running again, restart 1
web/app: completed
`},
		"it is another container now": {[]agent.Event{
			{Type: "Normal", Reason: "Killing", Message: "Container app definition changed, will be restarted"},
		}, `web/app: running
web/app: killing: definition changed
web/app: killed: definition changed
web/app: CrashLoopBackOff: killed: definition changed (back-off 10s)
web/app: running again, restart 1
web/app: completed
`},
	} {
		t.Run(name, func(t *testing.T) {
			h, s := tell(t, "Running app=run")
			app := &s.ContainerStatuses[0]
			h.status(0, s)
			for _, e := range c.events {
				e.Container = "app"
				h.hear(9500*time.Millisecond, agent.Update{Kind: agent.EventUpdate, Event: &e})
			}
			first := end(10*time.Second, 0, "")
			app.State = corev1.ContainerState{Terminated: first}
			h.status(10*time.Second, s)
			app.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container"}}
			app.LastTerminationState.Terminated = first
			h.status(11*time.Second, s)
			app.RestartCount, app.State = 1, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			h.status(20*time.Second, s)
			// The next one ends by itself.
			app.State = corev1.ContainerState{Terminated: end(30*time.Second, 0, "")}
			h.status(30*time.Second, s)
			h.expect(t, c.want)
		})
	}
}

func TestAWarningThatHasSomethingNewToSayEachTimeIsThinnedOut(t *testing.T) {
	var r repeats
	told := 0
	for i := range 1000 {
		if _, tell := r.add(fmt.Sprint("it is second ", i), epoch.Add(time.Duration(i)*time.Second)); tell {
			told++
		}
	}
	if told < manyTexts || told > manyTexts+6 || len(r.texts) > manyTexts {
		t.Errorf("of 1000 texts %d are told, %d are remembered", told, len(r.texts))
	}
}
