package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// text is what a running berth has printed.
func (r *running) text() string { return strings.Join(r.lines(), "\n") }

func TestRunsOutliveTheOneThatHostsTheAgent(t *testing.T) {
	n := newNode(t)
	const runs = 5
	for range 2 {
		var all []*running
		for i := range runs {
			all = append(all, n.start("run", n.file(pod(fmt.Sprint("one", i), "Never", 1, "exit", "7", "--after", "0.4s"))))
		}
		for i, r := range all {
			if code := r.wait(); code != 7 || !strings.Contains(r.text(), fmt.Sprintf("one%d: failed", i)) {
				t.Errorf("run %d ends with %d:\n%s", i, code, r.text())
			}
		}
	}
}

func TestAnEndThatNobodyHeardIsTold(t *testing.T) {
	n := newNode(t)
	file := n.file(pod("job", "Never", 1, "exit", "7", "--after", "0.5s"))
	for i := range 3 {
		first := n.start("run", "-o", "json", file)
		first.await(`"running":\{"startedAt"`)
		first.signal(syscall.SIGKILL)
		var begun record
		for _, line := range first.lines() {
			_ = json.Unmarshal([]byte(line), &begun) // berth's own log is between
		}
		first.wait()
		time.Sleep(time.Duration(i) * 400 * time.Millisecond)
		out, code := n.berth("run", file)
		if code != 7 || strings.Count(out, "job: failed") != 1 {
			t.Errorf("the run after it was killed ends with %d:\n%s", code, out)
		}
		now := n.uid("job")
		if begun.UID != now {
			t.Errorf("the pod ran twice: as %s, then as %s", begun.UID, now)
		}
		// Now that its end was told, it runs anew.
		if out, code := n.berth("run", file); code != 7 {
			t.Errorf("the next run ends with %d:\n%s", code, out)
		}
		if n.uid("job") == now {
			t.Error("the pod did not run anew")
		}
	}
}

var uidText = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// uid is that of a pod in berth ps, whatever berth logs beside it.
func (n *node) uid(name string) types.UID {
	n.t.Helper()
	return types.UID(uidText.FindString(n.must("ps", name, "-o", "wide")))
}

func TestInterruptKeepsPodsThatHaveEnded(t *testing.T) {
	n := newNode(t)
	r := n.start("run", n.file(pod("done", "Never", 1, "echo", "hi")+pod("web", "Always", 1, "serve")))
	r.await(`^done: succeeded`)
	r.await(`^web: ready`)
	r.signal(syscall.SIGINT)
	if code := r.wait(); code != 130 {
		t.Errorf("exit code %d, want 130:\n%s", code, r.text())
	}
	if out := n.must("ps", "-o", "name"); out != "done\n" {
		t.Errorf("afterwards there are:\n%s", out)
	}
	if out := n.must("logs", "done"); out != "hi\n" {
		t.Errorf("the log of the pod that had ended is %q", out)
	}
}

// What became of the pods can be found out after the time-out, from another agent.
func TestTimeoutKeepsPodsWithWhatTellsWhy(t *testing.T) {
	n := newNode(t)
	probed := strings.Replace(pod("web", "Always", 1, "serve"), "    args:",
		"    readinessProbe: {httpGet: {path: /nowhere, port: 8080}, periodSeconds: 1}\n    args:", 1)
	out, code := n.berth("run", "--timeout", "3s", n.file(probed))
	if code != 124 || !strings.Contains(out, "berth: not done:\nberth:   web/main: running") || !strings.Contains(out, "web: failed: TimedOut") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	if out := n.must("ps"); !regexp.MustCompile(`default +web +failed: TimedOut .* main: running: Readiness probe failed: .*404\n`).MatchString(out) {
		t.Errorf("afterwards there are:\n%s", out)
	}
	if out := n.must("logs", "web"); !strings.Contains(out, "serving") || !strings.Contains(out, "SIGTERM") {
		t.Errorf("its log is %q", out)
	}
	out = n.must("describe", "web")
	for _, want := range []string{`Started +main`, `Unhealthy +main +Readiness probe failed: `, `Killing +main`, `State: +failed: TimedOut`,
		`Why: +main: running: Readiness probe failed: .*404\n`, `Message: +not done when the --timeout of berth run was over, 3s: main: running: Readiness`, `readiness: .* not checked any more`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("berth describe does not say %q:\n%s", want, out)
		}
	}
	// Asked for once more, it is a new pod.
	again := n.start("run", n.file(probed))
	again.await(`^web/main: running`)
	again.signal(syscall.SIGINT)
	again.wait()
}

func TestInterruptLeavesPodsToOtherRuns(t *testing.T) {
	n := newNode(t)
	file := n.file(pod("web", "Always", 1, "serve"))
	first := n.start("run", file)
	first.await(`^web: ready`)
	second := n.start("run", file)
	second.await(`^web: ready`)
	first.signal(syscall.SIGINT) // it hosts the agent
	if code := first.wait(); code != 130 || !strings.Contains(first.text(), "web goes on: another berth run follows it") {
		t.Errorf("the first ends with %d:\n%s", code, first.text())
	}
	if s := n.status("web"); s == nil || s.Phase != "Running" {
		t.Errorf("the pod that the second run follows is %+v", s)
	}
	second.signal(syscall.SIGINT)
	if code := second.wait(); code != 130 || !strings.Contains(second.text(), "web: gone") {
		t.Errorf("the second ends with %d:\n%s", code, second.text())
	}
	if out := n.must("ps"); out != "no pods\n" {
		t.Errorf("afterwards there are:\n%s", out)
	}
}

func TestRunsThatAreInterruptedAtOnceStopWhatTheyShare(t *testing.T) {
	n := newNode(t)
	file := n.file(pod("web", "Always", 1, "serve"))
	first := n.start("run", file)
	first.await(`^web: ready`)
	second := n.start("run", file)
	second.await(`^web: ready`)
	first.signal(syscall.SIGINT)
	second.signal(syscall.SIGINT)
	if a, b := first.wait(), second.wait(); a != 130 || b != 130 {
		t.Errorf("they end with %d and %d:\n%s\n%s", a, b, first.text(), second.text())
	}
	if out := n.must("ps"); out != "no pods\n" {
		t.Errorf("afterwards there are:\n%s", out)
	}
}

func TestARunSaysWhoTookItsPod(t *testing.T) {
	n := newNode(t)
	first := n.start("run", n.file(pod("web", "Always", 1, "serve")))
	first.await(`^web: ready`)
	second := n.start("run", n.file(pod("web", "Always", 2, "serve")))
	if code := first.wait(); code == 0 || !strings.Contains(first.text(), "web was replaced by a new version") {
		t.Errorf("the run whose pod was replaced ends with %d:\n%s", code, first.text())
	}
	second.await(`^web: ready`)
	n.must("rm", "--force", "web")
	if code := second.wait(); code == 0 || !strings.Contains(second.text(), "web was stopped by another command") {
		t.Errorf("the run whose pod was removed ends with %d:\n%s", code, second.text())
	}
	third := n.start("run", n.file(pod("web", "Always", 1, "serve")))
	third.await(`^web: ready`)
	n.must("stop", "web")
	if code := third.wait(); code == 0 || !strings.Contains(third.text(), "web was stopped by another command") {
		t.Errorf("the run whose pod was stopped ends with %d:\n%s", code, third.text())
	}
}
