package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// shimPID is the process of the node's shim.
func (n *node) shimPID() int {
	n.t.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, path := range commands {
		line, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(line), "serve\x00--run\x00"+n.home().Shim()+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil {
			n.t.Fatal(err)
		}
		return pid
	}
	n.t.Fatal("no shim runs")
	return 0
}

// Who waits for a shim that is stopped or hangs is told which process it is and what
// to do, and who looks at pods that they may be in another state.
func TestAShimThatHangs(t *testing.T) {
	n := newNode(t)
	text := n.file(pod("web", "Always", 1, "serve"))
	n.must("run", "--detach", "--until", "ready", text)
	follows := n.start("run", text)
	follows.await(`^web: ready`)
	pid := n.shimPID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	number := strconv.Itoa(pid)
	want := "the shim (process " + number + ") does not answer: it may be stopped (kill -CONT " + number + " "
	if out, code := n.berth("exec", "web", "--", "/berth-demo", "hostname"); code != 1 || !strings.Contains(out, "cannot run /berth-demo in container main of pod web: "+want) {
		t.Errorf("exec ends with %d: %s", code, out)
	}
	follows.await(`^web: warning: ShimMute: nothing can be done to the pod: the shim \(process ` + number + `\)`)
	if out, code := n.berth("stop", "web"); code != 1 || !strings.Contains(out, "cannot wait for the end of pod web: "+want) {
		t.Errorf("stop ends with %d: %s", code, out)
	}
	if out := n.must("ps"); !strings.Contains(out, "what is shown may be out of date: "+want) {
		t.Errorf("ps says: %s", out)
	}
	if out := n.must("describe", "web"); !strings.Contains(out, "ShimMute") {
		t.Errorf("describe says: %s", out)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// What was asked for is done after all.
	follows.await(`^web: (succeeded|failed|completed)`)
	follows.wait()
}
