package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", name, diff)
	}
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// story is what happened to two pods, in order: "POD STATE" is a status in
// parsePod's words, "POD !TYPE REASON CONTAINER MESSAGE" an event, "POD
// %CONTAINER DONE TOTAL" a pull, "POD >CONTAINER TEXT" a log line, "POD gone".
var story = []string{
	"web Pending +init=wait:PodInitializing app=wait:PodInitializing",
	"web %init 1000000 30000000",
	"web %init 20000000 30000000",
	"web Pending +init=run app=wait:PodInitializing",
	"web >init preparing",
	"web Pending +init=end:0:Completed app=wait:PodInitializing",
	"web Running +init=end:0:Completed app=run",
	"web !Warning Unhealthy app Readiness probe failed: HTTP 503",
	"web !Warning Unhealthy app Readiness probe failed: HTTP 503",
	"web !Normal Started app Started container app",
	"web Running +init=end:0:Completed app=ready",
	"web >app serving",
	"job Pending main=wait:ErrImagePull:not:found",
	"job !Warning Failed main Failed to pull image",
	"job Pending main=wait:ImagePullBackOff:Back-off",
	"job Pending main=wait:ErrImagePull:not:found",
	"job Running main=ready",
	"web Running +init=end:0:Completed app=run",
	"web Running +init=end:0:Completed app=ready",
	"job Failed main=end:3:Error",
	"web Succeeded +init=end:0:Completed app=end:0:Completed",
	"web gone",
}

// play tells a story to a view.
func play(t *testing.T, v view) *board {
	t.Helper()
	names := []string{"web", "job"}
	var pods []*corev1.Pod
	var refs []agent.Ref
	for _, name := range names {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
		p.Spec.Containers = []corev1.Container{{Name: "app"}}
		pods = append(pods, p)
		refs = append(refs, agent.Ref{Namespace: "default", Name: name, UID: types.UID("uid-" + name)})
	}
	b := newBoard(pods, refs, epoch)
	v.begin(b)
	for i, line := range story {
		name, rest, _ := strings.Cut(line, " ")
		ref := refs[0]
		if name == "job" {
			ref = refs[1]
		}
		u := agent.Update{Time: epoch.Add(time.Duration(i) * time.Second), Pod: ref}
		switch f := strings.Fields(rest); {
		case rest == "gone":
			u.Kind = agent.GoneUpdate
		case rest[0] == '!':
			u.Kind = agent.EventUpdate
			u.Event = &agent.Event{Type: f[0][1:], Reason: f[1], Container: f[2], Message: strings.Join(f[3:], " ")}
		case rest[0] == '%':
			u.Kind = agent.ProgressUpdate
			u.Progress = &agent.Progress{Container: f[0][1:], Image: "example.com/app:1"}
			if _, err := fmt.Sscan(f[1]+" "+f[2], &u.Progress.Done, &u.Progress.Total); err != nil {
				t.Fatal(err)
			}
		case rest[0] == '>':
			v.log(b.byUID[ref.UID], nodeapi.LogLine{
				Time: u.Time, UID: ref.UID, Container: f[0][1:], Stream: "stdout", Text: []byte(strings.Join(f[1:], " ")),
			})
			continue
		default:
			parsed := parsePod(t, name, rest)
			u.Kind, u.Status = agent.StatusUpdate, parsed.status
			b.byUID[ref.UID].spec = parsed.spec
		}
		p, before := b.take(u)
		v.update(u, p, before)
	}
	return b
}

func TestPlainLines(t *testing.T) {
	var out bytes.Buffer
	v := &plainView{out: newOutput(&out), errOut: &out, teller: newTeller()}
	play(t, v)
	v.end()
	golden(t, "plain.txt", out.String())
}

func TestJSONLines(t *testing.T) {
	var out bytes.Buffer
	v := &jsonView{out: newOutput(&out), errOut: &out}
	play(t, v)
	v.end()
	golden(t, "json.txt", out.String())
}

// pods for tables: some of each sort.
func somePods(t *testing.T) []*podState {
	t.Helper()
	var pods []*podState
	for _, p := range [][2]string{
		{"web-with-a-long-name-that-goes-on-for-quite-a-while-and-longer", "Running app=ready proxy=ready"},
		{"db", "Pending main=wait:ContainerCreating"},
		{"lost", "Pending main=wait:ErrImagePull:cannot:pull:image:registry.example.com/team/project/application:1.2.3:not:found"},
		{"init", "Pending +prepare=run app=wait:PodInitializing"},
		{"done", "Succeeded main=end:0:Completed"},
		{"oom", "Failed main=end:137:OOMKilled"},
		{"новый", "Running main=ready"},
		{"fresh", "unknown"},
	} {
		s := parsePod(t, p[0], p[1])
		s.since = epoch
		pods = append(pods, s)
	}
	pods[1].pulls["main"] = agent.Progress{Container: "main", Image: "postgres:18", Done: 40 << 20, Total: 160 << 20}
	pods[0].status.ContainerStatuses[1].RestartCount = 3
	return pods
}

func TestTables(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {40, 10}, {80, 7}} {
		lines := table(somePods(t), epoch.Add(90*time.Second), size[0], size[1], style{})
		if len(lines) > size[1] {
			t.Errorf("%d lines, want %d at most", len(lines), size[1])
		}
		for _, l := range lines {
			if cells(l) > size[0] {
				t.Errorf("%d cells, want %d at most: %q", cells(l), size[0], l)
			}
		}
		golden(t, fmt.Sprintf("table-%dx%d.txt", size[0], size[1]), strings.Join(lines, "\n")+"\n")
	}
}

func TestTableShowsWhatMattersOfManyPods(t *testing.T) {
	var pods []*podState
	for i := range 100 {
		state := "Running main=ready"
		if i%25 == 24 {
			state = "Running main=wait:CrashLoopBackOff"
		}
		p := parsePod(t, fmt.Sprintf("p%02d", i), state)
		p.since = epoch
		pods = append(pods, p)
	}
	lines := table(pods, epoch, 80, 10, style{})
	text := strings.Join(lines, "\n")
	for _, want := range []string{"p24 ", "p49 ", "p74 ", "p99 "} {
		if !strings.Contains(text, want) {
			t.Errorf("%sis not shown:\n%s", want, text)
		}
	}
	if last := lines[len(lines)-1]; !strings.HasSuffix(last, " more: 96 ready") && !strings.Contains(last, "ready") {
		t.Errorf("the rest is not counted: %s", last)
	}
}

func TestLiveFrame(t *testing.T) {
	v := &liveView{
		screen: &screen{out: &bytes.Buffer{}}, size: func() (int, int) { return 80, 24 },
		app: &app{log: &logging{target: &switchWriter{}}}, origins: make(map[string]int),
	}
	b := play(t, v)
	for i := range 300 {
		v.log(b.pods[0], nodeapi.LogLine{Container: "app", Text: fmt.Appendf(nil, "\x1b[31mline\x1b[0m %d\r\tend %s", i, strings.Repeat("x", 90))})
	}
	frame := v.frame(epoch.Add(time.Minute), 80, 23)
	if len(frame) > 23 {
		t.Errorf("the frame has %d lines", len(frame))
	}
	for _, l := range frame {
		if cells(l) > 80 {
			t.Errorf("%d cells: %q", cells(l), l)
		}
	}
	if len(v.logs) != keptLines {
		t.Errorf("%d lines are kept, want %d", len(v.logs), keptLines)
	}
	golden(t, "frame-80x23.txt", strings.Join(frame, "\n")+"\n")
}

// What comes on different ways is told in the order in which it happened.
func TestAnOrdinaryStartIsToldInOrder(t *testing.T) {
	var out bytes.Buffer
	v := &plainView{out: newOutput(&out), errOut: &out, teller: newTeller()}
	p := parsePod(t, "web", "Running app=run")
	b := &board{pods: []*podState{p}, byUID: map[types.UID]*podState{p.ref.UID: p}}
	status := p.status
	started := &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(epoch)}
	status.ContainerStatuses[0].State.Running = started
	p.status = nil
	hear := func(after time.Duration, u agent.Update) {
		u.Time, u.Pod = epoch.Add(after), p.ref
		p, before := b.take(u)
		v.update(u, p, before)
	}
	told := func(s *corev1.PodStatus) { hear(0, agent.Update{Kind: agent.StatusUpdate, Status: s.DeepCopy()}) }
	event := func(after time.Duration, e agent.Event) {
		e.Container = "app"
		hear(after, agent.Update{Kind: agent.EventUpdate, Event: &e})
	}
	failed := agent.Event{Type: "Warning", Reason: "Unhealthy", Message: "Readiness probe failed: connection refused"}
	v.log(p, nodeapi.LogLine{Container: "app", Stream: "stdout", Text: []byte("hello")})
	told(status)
	event(time.Second, failed)
	event(2*time.Second, failed)
	event(2*time.Second, agent.Event{Type: "Warning", Reason: "Unhealthy", Message: "Liveness probe failed: HTTP 500"})
	event(12*time.Second, agent.Event{Type: "Normal", Reason: "Killing", Message: "Stopping container app"})
	event(13*time.Second, agent.Event{Type: "Warning", Reason: "Unhealthy", Message: "Readiness probe failed: it stops"})
	if word, _ := podWord(p); word != "stopping" {
		t.Errorf("the pod is %s while it is stopped", word)
	}
	over := status.DeepCopy()
	over.ContainerStatuses[0].RestartCount = 1
	over.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		StartedAt: metav1.NewTime(epoch), FinishedAt: metav1.NewTime(epoch.Add(time.Minute)),
	}}
	told(over)
	v.end()
	want := `web/app: running
web/app | hello
web/app: warning: Unhealthy: Readiness probe failed: connection refused
web/app: warning: Unhealthy: Liveness probe failed: HTTP 500
web: stopping
web/app: running again, restart 1
web/app: completed
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestStatesOfAPodThatIsHeldUp(t *testing.T) {
	for text, want := range map[string]string{
		"Pending app=wait:ContainerCreating":                               "creating",
		"Pending +init=wait:PodInitializing app=wait:PodInitializing":      "starting",
		"Running app=wait:ContainerCreating:the:postStart:hook:is:running": "postStart hook running",
	} {
		p := parsePod(t, "web", text)
		if word, _ := podWord(p); word != want {
			t.Errorf("%s: %s, want %s", text, word, want)
		}
	}
	p := parsePod(t, "web", "Pending app=wait:ContainerCreating")
	p.status.ContainerStatuses[0].State.Waiting.Message = "FailedMount: configmap \"x\" not found"
	if word, _ := podWord(p); word != "creating: FailedMount" {
		t.Errorf("the pod is %s", word)
	}
}
