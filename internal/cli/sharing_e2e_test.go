package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
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
	file := n.file(pod("job", "Never", 1, "exit", "7", "--after", "0.3s"))
	for i := range 3 {
		first := n.start("run", file)
		first.await(`^job/main: running`)
		uid := n.must("ps", "job", "-o", "wide")
		first.signal(syscall.SIGKILL)
		first.wait()
		time.Sleep(time.Duration(i) * 400 * time.Millisecond)
		out, code := n.berth("run", file)
		if code != 7 || strings.Count(out, "job: failed") != 1 {
			t.Errorf("the run after it was killed ends with %d:\n%s", code, out)
		}
		now := n.must("ps", "job", "-o", "wide")
		if a, b := lastField(uid), lastField(now); a != b {
			t.Errorf("the pod ran twice: as %s, then as %s", a, b)
		}
		// Now that its end was told, it runs anew.
		if out, code := n.berth("run", file); code != 7 {
			t.Errorf("the next run ends with %d:\n%s", code, out)
		}
		if again := n.must("ps", "job", "-o", "wide"); lastField(again) == lastField(now) {
			t.Errorf("the pod did not run anew:\n%s", again)
		}
	}
}

func lastField(text string) string {
	fields := strings.Fields(text)
	return fields[len(fields)-1]
}

func TestInterruptKeepsPodsThatHaveEnded(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"Ctrl-C":    {[]string{"run"}, 130},
		"--timeout": {[]string{"run", "--timeout", "2s"}, 124},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.start(append(c.args, n.file(pod("done", "Never", 1, "echo", "hi")+pod("web", "Always", 1, "serve")))...)
			r.await(`^done: succeeded`)
			r.await(`^web: ready`)
			if c.code == 130 {
				r.signal(syscall.SIGINT)
			}
			if code := r.wait(); code != c.code {
				t.Errorf("exit code %d, want %d:\n%s", code, c.code, r.text())
			}
			if out := n.must("ps", "-o", "name"); out != "done\n" {
				t.Errorf("afterwards there are:\n%s", out)
			}
			if out := n.must("logs", "done"); out != "hi\n" {
				t.Errorf("the log of the pod that had ended is %q", out)
			}
		})
	}
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
