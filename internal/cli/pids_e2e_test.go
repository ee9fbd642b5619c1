package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pidsLimit is the pids.max of a pod's cgroup.
func (n *node) pidsLimit(name string) string {
	n.t.Helper()
	uid := string(n.one(name).UID)
	var found []string
	for _, root := range []string{"/sys/fs/cgroup/pids/berth-*", "/sys/fs/cgroup/berth-*"} {
		for _, depth := range []string{"/*", "/*/*"} {
			paths, err := filepath.Glob(root + depth + "/pids.max")
			if err != nil {
				n.t.Fatal(err)
			}
			for _, p := range paths {
				if strings.Contains(p, uid) {
					found = append(found, p)
				}
			}
		}
	}
	if len(found) != 1 {
		n.t.Fatalf("cgroups of pod %s: %v", name, found)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestALimitOfProcessesHoldsForEachPod(t *testing.T) {
	n := newNode(t)
	start := func(name string, flags ...string) {
		t.Helper()
		n.must(append(append([]string{"run"}, flags...), "--detach", "--until", "ready", n.file(pod(name, "Always", 1, "serve")))...)
	}
	expect := func(name, want string) {
		t.Helper()
		if got := n.pidsLimit(name); got != want {
			t.Errorf("the limit of pod %s is %s, want %s", name, got, want)
		}
	}
	start("limited", "--pod-pids-limit", "77")
	expect("limited", "77")
	if out, code := n.berth("run", "--pod-pids-limit", "78", n.file(pod("more", "Always", 1, "serve"))); code != 2 || !strings.Contains(out, "--pod-pids-limit is 78, and the agent that runs") {
		t.Errorf("a run with another limit ends with %d: %s", code, out)
	}
	// A command that takes over without a word of it keeps the limit.
	n.killAgent()
	n.must("ps")
	start("next")
	expect("next", "77")
	n.killAgent()
	start("free", "--pod-pids-limit", "-1")
	expect("free", "max")
	expect("limited", "77")
	n.killAgent()
	start("later")
	expect("later", "max")
	// It is a limit: the kernel refuses what is beyond it.
	if out, code := n.berth("exec", "limited", "--", "/berth-demo", "spawn", fmt.Sprint(200)); code == 0 {
		t.Errorf("200 processes in a pod that may have 77: %s", out)
	}
	// Once no pod lives, the agent makes room for one with another limit.
	n.must("rm", "--force", "--grace", "0s", "--all")
	start("other", "--pod-pids-limit", "78")
	expect("other", "78")
	n.must("rm", "--force", "--grace", "0s", "--all")
}

// A container that has no room for one more process says so, in one line.
func TestAnExecWithoutRoomForItsProcess(t *testing.T) {
	n := newNode(t)
	// A program of berth-demo takes five threads and more, and no room is left.
	n.must("run", "--pod-pids-limit", "9", "--detach", "--until", "ready", n.file(pod("full", "Always", 1, "serve")))
	out, code := "", 0
	for range 20 {
		if out, code = n.berth("exec", "full", "--", "/berth-demo", "true"); strings.HasPrefix(out, "berth: ") {
			break
		}
	}
	want := "berth: cannot run /berth-demo in container main of pod full: the limit of processes and threads is reached, 9 for a pod: " +
		"end some, or raise it (stop all pods, then berth run --pod-pids-limit 18)\n"
	if out != want || code != 126 {
		t.Errorf("it ends with %d:\n%s\nwant\n%s", code, out, want)
	}
	n.must("rm", "--force", "--grace", "0s", "full")
}
