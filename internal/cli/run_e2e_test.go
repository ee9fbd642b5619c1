package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var numbered = regexp.MustCompile(`\bline (\d+)$`)

func TestExitCodesOfRun(t *testing.T) {
	n := newNode(t)
	for name, c := range map[string]struct {
		manifest string
		code     int
	}{
		"a pod that succeeds gives 0":                   {pod("fine", "Never", 1, "echo", "hi"), 0},
		"one pod gives its container's code":            {pod("seven", "Never", 1, "exit", "7"), 7},
		"of several pods, one that fails gives 1":       {pod("good", "Never", 1, "true") + pod("bad", "Never", 1, "exit", "7"), 1},
		"a wrong argument gives the program's own code": {pod("none", "Never", 1, "no-such-thing"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			n.t = t
			if out, code := n.berth("run", n.file(c.manifest)); code != c.code {
				t.Errorf("got exit code %d, want %d:\n%s", code, c.code, out)
			}
		})
	}
	n.t = t
	if out := n.must("ps"); !strings.Contains(out, "fine") || !strings.Contains(out, "succeeded") {
		t.Errorf("pods that have ended are not listed:\n%s", out)
	}
	if out := n.must("logs", "fine"); out != "hi\n" {
		t.Errorf("the log of a pod that has ended is %q", out)
	}
	n.must("rm", "--all")
	if out := n.must("ps"); out != "no pods\n" {
		t.Errorf("after rm --all there are:\n%s", out)
	}
}

func TestPlainOutputTellsEachChangeOnce(t *testing.T) {
	n := newNode(t)
	out, code := n.berth("run", n.file(pod("job", "Never", 1, "echo", "hello")))
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	for _, line := range []string{"job/main: running", "job/main: completed", "job/main | hello", "job: succeeded"} {
		if got := strings.Count(out, line+"\n"); got != 1 && (line != "job/main: running" || got > 1) {
			t.Errorf("%q is told %d times:\n%s", line, got, out)
		}
	}
}

func TestAPodThatIsReadyRunsOnInTheBackground(t *testing.T) {
	n := newNode(t)
	text := pod("web", "Always", 5, "serve")
	out, code := n.berth("run", "--until", "ready", "--timeout", "30s", n.file(text))
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	if out := n.must("ps"); !strings.Contains(out, "ready") || !strings.Contains(out, "1/1") {
		t.Errorf("berth ps shows:\n%s", out)
	}
	if out := n.must("ps", "default/web", "-o", "wide"); !strings.Contains(out, "berth.local/demo:latest") {
		t.Errorf("berth ps -o wide shows:\n%s", out)
	}
	n.eventually("serving", "logs", "web", "--tail", "1")
	if out := n.must("exec", "web", "--", "/berth-demo", "hostname"); out != "web\n" {
		t.Errorf("berth exec prints %q", out)
	}
	if out, code := n.berth("exec", "web", "-c", "main", "--", "/berth-demo", "exit", "9"); code != 9 {
		t.Errorf("berth exec ends with %d: %s", code, out)
	}
	if out, code := n.berth("exec", "web", "--", "/nothing"); code == 0 || !strings.Contains(out, "/nothing") {
		t.Errorf("berth exec of what is not there ends with %d: %s", code, out)
	}
	cmd := n.command("exec", "-i", "web", "--", "/berth-demo", "cat")
	cmd.Stdin = strings.NewReader("from the pipe\n")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "from the pipe\n" {
		t.Errorf("berth exec -i: %v, %q", err, out)
	}
	before := n.status("web").ContainerStatuses[0].ContainerID
	// The same again: nothing is restarted.
	n.must("run", "--until", "ready", n.file(text))
	if after := n.status("web").ContainerStatuses[0].ContainerID; after != before {
		t.Errorf("the container was replaced: %s, then %s", before, after)
	}
	if out, code := n.berth("rm", "web"); code != 1 || !strings.Contains(out, "--force") {
		t.Errorf("rm of a pod that runs ends with %d: %s", code, out)
	}
	if out, code := n.berth("cleanup", "-y"); code != 1 || !strings.Contains(out, "an agent (process ") {
		t.Errorf("cleanup under an agent ends with %d: %s", code, out)
	}
	follower := n.start("run", n.file(text))
	follower.await(`^web: ready`)
	n.must("stop", "web")
	if out := n.must("ps"); !regexp.MustCompile(`web +succeeded `).MatchString(out) {
		t.Errorf("a pod that was stopped and ended well is shown as:\n%s", out)
	}
	follower.await(`^web: succeeded: Stopped: stopped by berth stop$`)
	if code := follower.wait(); code != exitFailed { // it was not left to end by itself
		t.Errorf("the run of a pod that was stopped ends with %d", code)
	}
	if out := n.must("logs", "web"); !strings.Contains(out, "SIGTERM") {
		t.Errorf("the log of a stopped pod is:\n%s", out)
	}
	n.must("rm", "web")
	if out, code := n.berth("logs", "web"); code != 1 || !strings.Contains(out, "there is no pod web") {
		t.Errorf("logs of a removed pod ends with %d: %s", code, out)
	}
}

func TestInterruptStopsInOrder(t *testing.T) {
	n := newNode(t)
	r := n.start("run", n.file(pod("web", "Always", 20, "serve")))
	r.await(`^web: ready`)
	r.await(`serving`)
	r.signal(syscall.SIGINT)
	if code := r.wait(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	out := strings.Join(r.lines(), "\n")
	if !strings.Contains(out, "web/main | SIGTERM") || !strings.Contains(out, "web: gone") {
		t.Errorf("it did not stop gracefully:\n%s", out)
	}
	if out := n.must("ps"); out != "no pods\n" {
		t.Errorf("there are still:\n%s", out)
	}
}

func TestSecondInterruptKills(t *testing.T) {
	n := newNode(t)
	r := n.start("run", n.file(pod("stubborn", "Always", 3600, "ignore-term")))
	r.await(`^stubborn/main \| ignoring SIGTERM$`)
	r.signal(syscall.SIGTERM)
	r.await("^berth: stopping the pods; once more kills them$")
	time.Sleep(2 * oneRequest) // or it would be the same request
	r.signal(syscall.SIGTERM)
	if code := r.wait(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
}

func TestKilledAgentLosesNothing(t *testing.T) {
	n := newNode(t)
	file := n.file(pod("counter", "Always", 1, "print-lines", "0", "--rate", "50"))
	first := n.start("run", file)
	first.await(`line 20$`)
	before := n.status("counter").ContainerStatuses[0]
	first.signal(syscall.SIGKILL)
	first.wait()
	time.Sleep(300 * time.Millisecond) // it writes while nobody is there

	second := n.start("run", file)
	second.await(`line 100$`)
	after := n.status("counter").ContainerStatuses[0]
	if after.ContainerID != before.ContainerID || after.RestartCount != before.RestartCount {
		t.Errorf("the container is %s, restart %d; it was %s, restart %d",
			after.ContainerID, after.RestartCount, before.ContainerID, before.RestartCount)
	}
	seen := numbers(second.lines())
	for i := 1; i <= 100; i++ {
		if got := seen[fmt.Sprint(i)]; got != 1 {
			t.Fatalf("line %d is shown %d times", i, got)
		}
	}
	second.signal(syscall.SIGINT)
	second.wait()
}

func TestASecondRunJoinsAndTakesOver(t *testing.T) {
	n := newNode(t)
	first := n.start("run", n.file(pod("one", "Always", 2, "serve")))
	first.await(`^one: ready`)
	second := n.start("run", n.file(pod("two", "Always", 2, "print-lines", "0", "--rate", "50")))
	second.await(`^two: ready`)
	second.await(`line 10$`)
	before := n.status("two").ContainerStatuses[0].ContainerID
	first.signal(syscall.SIGKILL)
	first.wait()
	second.await("this process goes on")
	second.await(`line 100$`)
	seen := numbers(second.lines())
	for i := 1; i <= 100; i++ {
		if got := seen[fmt.Sprint(i)]; got != 1 {
			t.Fatalf("line %d is shown %d times:\n%s", i, got, strings.Join(second.lines(), "\n"))
		}
	}
	if after := n.status("two").ContainerStatuses[0].ContainerID; after != before {
		t.Errorf("the container was replaced: %s, then %s", before, after)
	}
	if n.status("one") == nil {
		t.Error("the other pod is lost")
	}
	second.signal(syscall.SIGINT)
	if code := second.wait(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	// The first pod is driven on in the background.
	if s := n.status("one"); s == nil || s.Phase != "Running" {
		t.Errorf("the other pod is %+v", s)
	}
}

func TestJSONOutputParses(t *testing.T) {
	n := newNode(t)
	r := n.start("run", "-o", "json", n.file(pod("job", "Never", 1, "echo", "hello")))
	if code := r.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	kinds := make(map[string]int)
	var last record
	for _, line := range r.lines() {
		var rec record
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if rec.Time.IsZero() || rec.Pod != "default/job" {
			t.Errorf("no time or pod in %q", line)
		}
		kinds[rec.Kind]++
		if rec.Kind == "status" {
			last = rec
		}
		if rec.Kind == "log" && rec.Log.Line != "hello" {
			t.Errorf("the log says %q", rec.Log.Line)
		}
	}
	if kinds["log"] != 1 || kinds["status"] == 0 {
		t.Errorf("got %v", kinds)
	}
	if last.Status == nil || last.Status.Phase != "Succeeded" {
		t.Errorf("the last status is %+v", last.Status)
	}
}

func TestTimeoutSaysWhatIsNotReadyAndWhy(t *testing.T) {
	n := newNode(t)
	file := n.file(pod("fine", "Always", 1, "serve") + `---
apiVersion: v1
kind: Pod
metadata: {name: lost}
spec:
  containers:
  - {name: main, image: "127.0.0.1:1/nothing:1"}
`)
	out, code := n.berth("run", "--until", "ready", "--timeout", "2s", file)
	if code != 124 {
		t.Errorf("exit code %d, want 124", code)
	}
	_, report, found := strings.Cut(out, "not ready:\n")
	if !found || !strings.Contains(report, "lost/main: ") || !strings.Contains(report, "127.0.0.1:1/nothing:1") || strings.Contains(report, "fine") {
		t.Errorf("the report is:\n%s", out)
	}
	n.must("rm", "--all", "--force", "--grace", "0s")

	out, code = n.berth("run", "--timeout", "1s", n.file(pod("slow", "Never", 1, "sleep", "1h")))
	if code != 124 || !strings.Contains(out, "slow/main: running") || !strings.Contains(out, "time is up after 1s; stopping the pods, which stay listed") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if out := n.must("ps", "-o", "name"); out != "slow\n" {
		t.Errorf("a foreground run that timed out left:\n%s", out)
	}
}

func TestBadManifestStartsNothing(t *testing.T) {
	n := newNode(t)
	file := n.file(pod("ok", "Never", 1, "true") + `---
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  containers:
  - {name: main, image: a, prots: []}
`)
	for _, command := range []string{"run", "validate"} {
		out, code := n.berth(command, file)
		if code != 2 || !strings.Contains(out, "prots") {
			t.Errorf("berth %s ends with %d:\n%s", command, code, out)
		}
	}
	if _, err := os.Stat(n.root); err == nil {
		t.Error("something was made below the root")
	}
	if out, code := n.berth("run", "/no/such/file.yaml"); code != 2 {
		t.Errorf("a missing file ends with %d:\n%s", code, out)
	}
	if out, code := n.berth("run", "--until", "nonsense", file); code != 2 || !strings.Contains(out, "--until") {
		t.Errorf("a wrong flag ends with %d:\n%s", code, out)
	}
	if out, code := n.berth("run", "--nonsense", file); code != 2 {
		t.Errorf("an unknown flag ends with %d:\n%s", code, out)
	}
}

func TestLogsFollowThroughRestarts(t *testing.T) {
	n := newNode(t)
	n.must("run", "--detach", n.file(pod("again", "Always", 1, "crash-after", "200ms")))
	r := n.start("logs", "-f", "again", "--timestamps")
	deadline := time.Now().Add(30 * time.Second)
	for n.status("again").ContainerStatuses == nil || n.status("again").ContainerStatuses[0].RestartCount < 1 {
		if time.Now().After(deadline) {
			t.Fatal("it is not restarted")
		}
		time.Sleep(50 * time.Millisecond)
	}
	n.must("logs", "again", "--previous")
	n.must("stop", "again")
	if code := r.wait(); code != 0 {
		t.Errorf("logs -f ends with %d", code)
	}
	crashes := 0
	for _, l := range r.lines() {
		if _, err := time.Parse(time.RFC3339Nano, strings.Fields(l + " -")[0]); err != nil {
			t.Errorf("no time in %q", l)
		}
		crashes++
	}
	if crashes < 2 {
		t.Errorf("lines of %d starts, want 2 or more:\n%s", crashes, strings.Join(r.lines(), "\n"))
	}
}

func TestDetachedRunReturnsAtOnce(t *testing.T) {
	n := newNode(t)
	out := n.must("run", "--detach", n.file(pod("bg", "Always", 1, "serve")))
	if !strings.Contains(out, "in the background: bg") {
		t.Errorf("it says:\n%s", out)
	}
	n.must("run", "--detach", "--until", "ready", n.file(pod("bg2", "Always", 1, "serve")))
	if s := n.status("bg2"); s == nil || !isReady(s) {
		t.Errorf("the pod is %+v", s)
	}
	n.must("stop", "--all", "--grace", "1s")
}
