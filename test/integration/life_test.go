package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/testutil/leak"
)

// Init containers and sidecars start in order, each after the one before, and
// sidecars end in reverse order after the main container.
func TestSidecarsStartInOrderAndEndInReverse(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, `
apiVersion: v1
kind: Pod
metadata: {name: order}
spec:
  terminationGracePeriodSeconds: 20
  initContainers:
  - {name: one, image: demo, restartPolicy: Always, args: [serve, --port, "8101"], startupProbe: {httpGet: {path: /healthz, port: 8101}, periodSeconds: 1}}
  - {name: between, image: demo, args: [echo, between]}
  - {name: two, image: demo, restartPolicy: Always, args: [serve, --port, "8102"], startupProbe: {httpGet: {path: /healthz, port: 8102}, periodSeconds: 1}}
  containers:
  - {name: main, image: demo, args: [serve, --term-delay, 300ms]}
`)
	p.ready(t)
	p.says(t, "main", "serving")
	s := p.status()
	var began []time.Time
	for _, c := range []string{"one", "between", "two", "main"} {
		began = append(began, p.lines(t, c, 0)[0].at)
		if cs := container(s, c); c != "between" && (cs.Started == nil || !*cs.Started) {
			t.Errorf("%s is not started: %+v", c, cs)
		}
	}
	if !slices.IsSortedFunc(began, time.Time.Compare) {
		t.Errorf("they began at %v", began)
	}
	p.remove(t)
	p.until(t, "over", func(s *corev1.PodStatus) bool {
		return container(s, "one").State.Terminated != nil && container(s, "two").State.Terminated != nil && container(s, "main").State.Terminated != nil
	})
	var stopped []string
	all, _ := p.node.seen.of(p.UID)
	for _, u := range all {
		if u.Event != nil && u.Event.Reason == "Killing" {
			stopped = append(stopped, u.Event.Container)
		}
	}
	if want := []string{"main", "two", "one"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped in the order %q, want %q", stopped, want)
	}
	p.gone(t)
}

func TestHooksOfEachKind(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	p := n.run(t, onePod("hooks", `
args: [serve, --log]
volumeMounts: [{name: v, mountPath: /v}]
lifecycle:
  postStart: {exec: {command: [/berth-demo, write, /v/post-start, done]}}
  preStop: {httpGet: {path: /pre-stop, port: 8080}}`, "volumes: [{name: v, emptyDir: {}}]"))
	p.ready(t)
	p.prints(t, "app", "done", "cat", "/v/post-start")
	file, err := os.Open(p.logFile("app", 0)) // it is gone with the pod, but can be read
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p.stop(t)
	b := make([]byte, 64<<10)
	size, _ := file.Read(b)
	if !strings.Contains(string(b[:size]), "GET /pre-stop") {
		t.Errorf("the preStop hook did not come: %q", b[:size])
	}
}

func (p *pod) logFile(c string, attempt int) string {
	return filepath.Join(p.node.cfg.Root, "logs/pods", p.Namespace+"_"+p.Name+"_"+string(p.UID), c, fmt.Sprintf("%d.log", attempt))
}

func TestPostStartHookThatFailsKillsTheContainer(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, onePod("bad-hook", `
args: [sleep, inf]
lifecycle: {postStart: {exec: {command: [/berth-demo, exit, "3"]}}}`, "restartPolicy: Never"))
	if end := container(p.ended(t), "app").State.Terminated; end == nil {
		t.Errorf("it did not end: %s", p.story())
	}
	p.event(t, "FailedPostStartHook")
	p.stop(t)
}

func TestPreStopHookCannotStretchTheGracePeriod(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, strings.Replace(onePod("long-hook", `
args: [serve]
lifecycle: {preStop: {exec: {command: [/berth-demo, sleep, inf]}}}`), "Seconds: 5", "Seconds: 1", 1))
	p.ready(t)
	p.says(t, "app", "serving")
	p.stop(t) // returns at all
	p.event(t, "FailedPreStopHook")
}

func TestTerminationMessages(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for name, c := range map[string]struct{ container, want string }{
		"message-file":   {"args: [write, /dev/termination-log, last words]", "last words\n"},
		"message-path":   {"args: [write, /tmp/words, other words]\nterminationMessagePath: /tmp/words", "other words\n"},
		"message-log":    {"args: [crash-after, 0s]\nterminationMessagePolicy: FallbackToLogsOnError", "crash"},
		"message-no-log": {"args: [\"true\"]\nterminationMessagePolicy: FallbackToLogsOnError", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := n.run(t, onePod(name, c.container, "restartPolicy: Never"))
			end := container(p.ended(t), "app").State.Terminated
			if !strings.Contains(end.Message, c.want) || c.want == "" && end.Message != "" {
				t.Errorf("the message is %q, want %q", end.Message, c.want)
			}
			p.stop(t)
		})
	}
}

// A log of a gigabyte passes through rotation. Neither agent nor shim keep it in
// memory, and what is kept of it has no gap.
func TestFloodOfLogsIsRotatedWithoutAGap(t *testing.T) {
	n := newNode(t, func(c *agent.Config) { c.LogMaxBytes, c.LogMaxFiles = 16<<20, 3 })
	const lines, size = 1 << 20, 1024
	p := n.run(t, onePod("flood", fmt.Sprintf("args: [print-lines, \"%d\", --size, \"%d\"]", lines, size), "restartPolicy: Never"))
	p.id(t, "app")
	shim := n.shimPID(t)
	p.succeeded(t)
	if peak := peakKB(t, shim); peak > 80<<10 {
		t.Errorf("the shim used %d KiB", peak)
	}
	kept := p.lines(t, "app", 0)
	if len(kept) < 16<<20/(size+100) {
		t.Fatalf("only %d lines are kept", len(kept))
	}
	last := firstNumber(kept[0].text) - 1
	for _, l := range kept {
		if number := firstNumber(l.text); number != last+1 {
			t.Fatalf("line %d follows line %d", number, last)
		}
		last++
	}
	if last != lines {
		t.Errorf("the last line is %d, want %d", last, lines)
	}
	files, err := filepath.Glob(p.logFile("app", 0) + "*")
	if err != nil || len(files) > 3 {
		t.Errorf("%d files are kept: %v", len(files), err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 16<<20 {
			t.Errorf("%s has %d bytes, %v", f, info.Size(), err)
		}
	}
	p.stop(t)
}

// peakKB is the most memory that a process has had resident, in KiB.
func peakKB(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	var kb int
	if _, err := fmt.Sscan(after, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}

// The disk gets full while a container logs. The container goes on, and so does
// the log when there is room.
func TestFullDiskDuringALogWriteHarmsNobody(t *testing.T) {
	n := newNode(t, func(c *agent.Config) { c.Root = smallDisk(t, 48<<20) })
	p := n.run(t, onePod("full-log", "args: [serve, --log]"))
	p.ready(t)
	p.answers(t, "/hostname", "full-log")
	ballast := filepath.Join(n.cfg.Root, "ballast")
	fill(t, ballast)
	for range 200 { // fills the last page of the log
		p.answers(t, "/healthz?"+strings.Repeat("x", 100), "ok")
	}
	if s := p.status(); container(s, "app").RestartCount != 0 || !isReady(s) {
		t.Errorf("the pod suffers: %s", p.story())
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		p.answers(t, "/status?after=1", "OK")
		if got := p.logs(t, "app"); !strings.Contains(got, "after=1") {
			return fmt.Errorf("the log does not go on: %.300q", got)
		}
		return nil
	})
	p.stop(t)
}

// Pods come and go many times; descriptors of agent and shim, goroutines, mounts
// and files stay as they are.
func TestNothingAddsUp(t *testing.T) {
	n := newNode(t)
	text := `
apiVersion: v1
kind: Pod
metadata: {name: cycle}
spec:
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 5
  shareProcessNamespace: true
  volumes: [{name: m, emptyDir: {medium: Memory}}, {name: d, emptyDir: {}}]
  containers:
  - {name: app, image: demo, args: [serve], volumeMounts: [{name: m, mountPath: /m}, {name: d, mountPath: /d, subPath: sub}], ports: [{containerPort: 8080, hostPort: 18099}],
     readinessProbe: {exec: {command: [test, -d, /m]}, periodSeconds: 1}}
  - {name: other, image: demo, args: [exit, "0", --after, 100ms]}
`
	cycle := func() {
		p := n.run(t, text)
		p.until(t, "half done", func(s *corev1.PodStatus) bool {
			app, other := container(s, "app"), container(s, "other")
			return app != nil && app.Ready && other != nil && other.State.Terminated != nil
		})
		p.prints(t, "app", "uid=0", "id")
		p.stop(t)
	}
	for range 3 { // what is opened once and kept
		cycle()
	}
	scope := n.scope()
	scope.Procs = []int{0, n.shimPID(t)}
	before := leak.Take(t, scope)
	for range 10 {
		cycle()
	}
	before.NoMore(t, scope)
}
