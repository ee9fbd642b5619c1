package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processOf is the folder in /proc of a process of berth-demo with these
// arguments; empty if there is none.
func processOf(args ...string) string {
	want := append([]byte("/berth-demo\x00"), strings.Join(args, "\x00")+"\x00"...)
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		if line, err := os.ReadFile(path); err == nil && bytes.Equal(line, want) {
			return filepath.Dir(path)
		}
	}
	return ""
}

func runs(args ...string) bool { return processOf(args...) != "" }

func (n *node) awaitRuns(want bool, args ...string) {
	n.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); runs(args...) != want; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("berth-demo %v runs: %t, want %t", args, !want, want)
		}
	}
}

func TestWhatBecomesOfTheCommandOfAnExecThatIsInterrupted(t *testing.T) {
	n := newNode(t)
	n.must("run", "--until", "ready", n.file(pod("web", "Always", 1, "serve")))
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGKILL} {
		r, _, _ := n.onTerminal("exec", "-it", "web", "--", "/berth-demo", "sleep", "7431h")
		n.awaitRuns(true, "sleep", "7431h")
		r.signal(sig)
		n.awaitRuns(false, "sleep", "7431h") // its terminal hung up
		if code := r.wait(); sig == syscall.SIGHUP && code != 129 {
			t.Errorf("exec ends with %d after SIGHUP", code)
		}
	}
	r := n.start("exec", "web", "--", "/berth-demo", "sleep", "7432h")
	n.awaitRuns(true, "sleep", "7432h")
	// No process begins with signals ignored that berth or its shim does not want.
	if ignored := ignoredSignals(t, processOf("sleep", "7432h")); ignored != 0 {
		t.Errorf("it ignores signals %#x", ignored)
	}
	r.signal(syscall.SIGINT)
	if code := r.wait(); code != 130 {
		t.Errorf("exec ends with %d after SIGINT", code)
	}
	n.must("exec", "web", "--", "/berth-demo", "true") // the agent has heard by now
	if !runs("sleep", "7432h") {
		t.Error("without a terminal, the command ended with berth exec")
	}
	n.must("rm", "--force", "--grace", "0s", "web")
}

// ignoredSignals is the mask of the signals 1 to 31 that a process ignores; those
// above are the C library's, and whatever started this test may ignore them.
func ignoredSignals(t *testing.T, process string) uint64 {
	t.Helper()
	status, err := os.ReadFile(process + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "SigIgn:\t")
	mask, err := strconv.ParseUint(strings.SplitN(after, "\n", 2)[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return mask & (1<<31 - 1)
}
