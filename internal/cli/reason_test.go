package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
)

// aDescription is of a pod in parsePod's words.
func aDescription(t *testing.T, name, text string, events ...agent.PastEvent) agent.Description {
	t.Helper()
	p := parsePod(t, name, text)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(epoch),
	}, Spec: *p.spec}
	if p.status != nil {
		pod.Status = *p.status
	}
	return agent.Description{Pod: pod, Events: events}
}

func happened(at time.Duration, count int, e agent.Event) agent.PastEvent {
	return agent.PastEvent{Event: e, Count: count, First: epoch, Last: epoch.Add(at)}
}

func TestReasonsOfPods(t *testing.T) {
	probe := happened(time.Minute, 7, agent.Event{Type: "Warning", Reason: "Unhealthy", Container: "app", Message: "Readiness probe failed: HTTP 503"})
	for name, c := range map[string]struct {
		pod    string
		events []agent.PastEvent
		want   string
	}{
		"it is ready":                   {"Running app=ready", []agent.PastEvent{probe}, ""},
		"it has succeeded":              {"Succeeded app=end:0:Completed", nil, ""},
		"its probe fails":               {"Running app=run", []agent.PastEvent{probe}, "Readiness probe failed: HTTP 503"},
		"one of several":                {"Running app=run b=ready", []agent.PastEvent{probe}, "app: Readiness probe failed: HTTP 503"},
		"no check was made":             {"Running app=run", nil, "it runs, and its readiness probe has not succeeded"},
		"its image is not to be had":    {"Pending app=wait:ErrImagePull:no:such:image", nil, "no such image"},
		"two are not to be had":         {"Pending a=wait:ErrImagePull:no:such:image b=wait:ErrImagePull:none", nil, "a: no such image (and 1 more)"},
		"the reason alone":              {"Pending app=wait:ErrImageNeverPull", nil, ""},
		"another is not to be had":      {"Pending a=ready b=wait:ErrImagePull:none", nil, "b: none"},
		"it failed":                     {"Failed app=end:3:Error", nil, "exit code 3"},
		"it failed for the node":        {"Failed:Evicted app=end:137:Error", nil, "exit code 137 (SIGKILL)"},
		"its sidecar was killed later":  {"Failed *s=end:137:Error app=end:5:Error b=end:1:Error", nil, "app: exit code 5 (and 1 more)"},
		"only its sidecar failed":       {"Failed:Stopped *s=end:137:Error app=end:0:Completed", nil, "s: exit code 137 (SIGKILL)"},
		"nothing is known":              {"unknown", nil, "nothing is known of it yet"},
		"its init container runs":       {"Pending +init=run app=wait:PodInitializing", nil, "init: running"},
		"a check failed for the former": {"Running app=run", []agent.PastEvent{happened(-time.Hour, 1, probe.Event)}, "it runs, and its readiness probe has not succeeded"},
	} {
		d := aDescription(t, "web", c.pod, c.events...)
		for i := range d.Pod.Status.ContainerStatuses {
			if r := d.Pod.Status.ContainerStatuses[i].State.Running; r != nil {
				r.StartedAt = metav1.NewTime(epoch)
			}
		}
		p := described(d)
		word, _ := podWord(p)
		if got := reasonOf(p, word); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The events of a pod's life tell what its container was killed for, in berth ps and
// describe.
func TestWhatAContainerWasKilledForIsAReason(t *testing.T) {
	for name, c := range map[string]struct {
		killed time.Duration
		code   int32
		reason string
		want   string
	}{
		"it ended well then":        {10 * time.Second, 0, "Completed", "killed: liveness probe failed: HTTP 500 (back-off 10s)"},
		"it was killed by a signal": {9500 * time.Millisecond, 137, "Error", "killed: liveness probe failed: HTTP 500 (back-off 10s)"},
		"it had too little memory":  {10 * time.Second, 137, "OOMKilled", "OOMKilled (back-off 10s)"},
		"the one before it was":     {8 * time.Second, 0, "Completed", "completed (back-off 10s)"},
		"a later one was killed":    {12 * time.Second, 3, "Error", "exit code 3 (back-off 10s)"},
	} {
		d := aDescription(t, "web", "Running app=wait:CrashLoopBackOff:back-off:10s:restarting:failed",
			happened(c.killed, 3, agent.Event{Type: "Normal", Reason: "Killing", Container: "app", Message: "Container app failed liveness probe, will be restarted"}),
			happened(c.killed+time.Second, 9, agent.Event{Type: "Warning", Reason: "Unhealthy", Container: "app", Message: "Liveness probe failed: HTTP 500"}))
		last := end(10*time.Second, c.code, "")
		last.Reason = c.reason
		d.Pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = last
		p := described(d)
		word, _ := podWord(p)
		if got := reasonOf(p, word); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		said := strings.Contains(description(d, epoch.Add(time.Minute)), "\n                   killed: liveness probe failed: HTTP 500\n")
		if want := strings.HasPrefix(c.want, "killed"); said != want {
			t.Errorf("%s: that it was killed is in its description: %t, want %t", name, said, want)
		}
	}
}

func TestPodsAreListedWithTheirReasons(t *testing.T) {
	all := []agent.Description{
		aDescription(t, "db", "Running app=ready"),
		aDescription(t, "web", "Pending app=wait:ErrImagePull:there:is:no:such:image"),
	}
	var out bytes.Buffer
	if err := showPods(&out, all, "", epoch.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	want := `NAMESPACE  POD  STATE         READY  RESTARTS  AGE  REASON
default    db   ready         1/1    0         60s
default    web  ErrImagePull  0/1    0         60s  there is no such image
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	rows := [][]string{{"A", "REASON"}, {"a", strings.Repeat("x", 100)}}
	out.Reset()
	columns(&out, rows, 40)
	if want := "A  REASON\na  " + strings.Repeat("x", 36) + "…\n"; out.String() != want {
		t.Errorf("on a terminal of 40 cells:\n%s", &out)
	}
}

// No line is wider than the terminal, and the reason has what room there is.
func TestPodsAreListedOnNarrowTerminals(t *testing.T) {
	rows := func(namespace string) [][]string {
		return [][]string{
			{"NAMESPACE", "POD", "STATE", "READY", "RESTARTS", "AGE", "REASON"},
			{"default", "db", "ready", "1/1", "0", "60s", ""},
			{namespace, "web-of-a-long-name", "ImagePullBackOff", "0/1", "12", "60s", strings.TrimSpace(strings.Repeat("there is no such image ", 10))},
		}
	}
	for _, c := range []struct {
		namespace string
		limit     int
		want      string
	}{
		{"default", 110, `POD                 STATE             READY  RESTARTS  AGE  REASON
db                  ready             1/1    0         60s
web-of-a-long-name  ImagePullBackOff  0/1    12        60s  there is no such image there is no such image the…
`},
		{"default", 80, `POD                 STATE             READY  RESTARTS  AGE  REASON
db                  ready             1/1    0         60s
web-of-a-long-name  ImagePullBackOff  0/1    12        60s  there is no such im…
`},
		{"other", 80, `NAMESPACE  POD                 STATE             READY  REASON
default    db                  ready             1/1
other      web-of-a-long-name  ImagePullBackOff  0/1    there is no such image …
`},
		{"other", 60, `POD                   STATE             REASON
db                    ready
other/web-of-a-long…  ImagePullBackOff  there is no such im…
`},
		{"default", 30, `POD         STATE     REASON
db          ready
web-of-a-…  ImagePu…  there i…
`},
		{"default", 7, `POD   …
db
web-of…
`},
	} {
		var out bytes.Buffer
		columns(&out, narrow(rows(c.namespace), c.limit), c.limit)
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Errorf("%d cells: -want +got:\n%s", c.limit, diff)
		}
		for line := range strings.Lines(out.String()) {
			if n := cells(strings.TrimSuffix(line, "\n")); n > c.limit {
				t.Errorf("%d cells: a line takes %d: %s", c.limit, n, line)
			}
		}
	}
}

// A warning is not told beside a container's trouble that says the same.
func TestTheLastWarningSaysMoreThanTheStates(t *testing.T) {
	for message, want := range map[string]bool{
		"Failed to pull image \"x\": no such image": false,
		"no such image": false,
		"Back-off pulling image \"x\": no such image": false,
		"the disk is full":                            true,
	} {
		p := parsePod(t, "p", "Pending a=wait:ErrImagePull:no:such:image")
		p.warning = &agent.Event{Reason: "Failed", Message: message}
		if got := strings.Contains(strings.Join(blockers(p, false), "\n"), "last warning"); got != want {
			t.Errorf("%s: it is told: %t, want %t", message, got, want)
		}
	}
	for _, e := range []agent.Event{{Reason: "BackOff", Message: "Back-off restarting"}, {Reason: "Failed", Message: "Error: ImagePullBackOff"}} {
		if e.Type = corev1.EventTypeWarning; warns(&e) {
			t.Errorf("%s says more than the state: %s", e.Reason, e.Message)
		}
	}
	p := parsePod(t, "p", "Pending a=wait:ErrImagePull:no:such:image b=wait:ErrImagePull:no:such:image")
	if got, want := strings.Join(blockers(p, false), "\n"), "p/a: ErrImagePull: no such image\np/b: ErrImagePull"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
