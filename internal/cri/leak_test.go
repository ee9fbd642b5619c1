package cri

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// traces counts what pods could leave behind, here and in the shim.
func (r *realStack) traces(t *testing.T) map[string]int {
	t.Helper()
	count := func(pattern string) int {
		list, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	snapshots, err := r.images.Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]int{
		"mounts":          bytes.Count(mounts, []byte("\n")),
		"descriptors":     count("/proc/self/fd/*"),
		"shim's":          count(fmt.Sprintf("/proc/%d/fd/*", r.shimPID(t))),
		"goroutines":      runtime.NumGoroutine(),
		"cgroups":         count("/sys/fs/cgroup/*"+r.cgroup+"/*/") + count("/sys/fs/cgroup"+r.cgroup+"/*/"),
		"interfaces":      count("/sys/class/net/*"),
		"namespace files": count(filepath.Join(r.dir, "run/ns/*")),
		"sandbox folders": count(filepath.Join(r.dir, "run/sandboxes/*")),
		"bundles":         count(filepath.Join(r.dir, "run/containers/*")),
		"state files":     count(filepath.Join(r.dir, "run/state/*/*")),
		"snapshots":       len(snapshots),
		"networks":        len(r.network.List()),
	}
}

// shimPID finds the shim of the stack.
func (r *realStack) shimPID(t *testing.T) int {
	t.Helper()
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range list {
		raw, _ := os.ReadFile(path)
		if args := strings.Split(string(raw), "\x00"); len(args) > 1 && args[1] == "serve" && strings.HasPrefix(args[0], r.dir+"/") {
			var pid int
			fmt.Sscanf(path, "/proc/%d/", &pid)
			return pid
		}
	}
	t.Fatal("the shim does not run")
	return 0
}

func TestRealPodsLeaveNothing(t *testing.T) {
	r := real(t)
	cycle := func() {
		p := r.pod(t, func(c podConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
			c.PortMappings = []*runtimeapi.PortMapping{{HostPort: 18081, ContainerPort: 8080}}
		})
		id := p.start(func(c ctrConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/image", Image: &runtimeapi.ImageSpec{Image: insideImage}}}
		}, "sleep")
		p.exec(id, "report")
		p.start(nil, "exit", "1")
		bad := p.create(func(c ctrConfig) { c.Command = []string{"/nowhere"} })
		if err := p.StartContainer(context.Background(), bad); err == nil {
			t.Error("a missing command starts")
		}
		if err := r.RemovePodSandbox(context.Background(), p.id); err != nil {
			t.Fatal(err)
		}
	}
	cycle() // what is made once is made now
	before := r.traces(t)
	for range 5 {
		cycle()
	}
	var more []string
	for range 200 { // some of it goes in the background
		more = nil
		for what, n := range r.traces(t) {
			if n > before[what] {
				more = append(more, fmt.Sprintf("%s: %d, were %d", what, n, before[what]))
			}
		}
		if len(more) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("left behind: %v", more)
}

// The shim is killed. Containers live on and can be stopped; one that ends
// meanwhile has its exit code, or an unknown one, but no invented one.
func TestRealShimKilled(t *testing.T) {
	r := real(t)
	p := r.pod(t)
	living := p.start(nil, "on-signal")
	p.awaitLog(living, "ready")
	ending := p.start(nil, "lines", "100", "5")
	p.awaitLog(ending, "line 1\n")
	if err := syscall.Kill(r.shimPID(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	st := p.await(ending)
	switch {
	case st.GetExitCode() == 0 && st.GetReason() == "Completed":
	case st.GetExitCode() == UnknownExitCode && st.GetReason() == ReasonUnknown:
	default:
		t.Errorf("status %v", st)
	}
	if n := strings.Count(p.log(ending), "\n"); n != 100 {
		t.Errorf("log has %d lines, want 100", n)
	}
	if st := p.status(living); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("status %v", st)
	}
	if err := p.StopContainer(t.Context(), living, 30); err != nil {
		t.Fatal(err)
	}
	if st := p.status(living); st.GetExitCode() != 15 && st.GetReason() != ReasonUnknown {
		t.Errorf("status %v", st)
	}
	if st := p.await(p.start(nil, "exit", "3")); st.GetExitCode() != 3 {
		t.Errorf("under the new shim: %v", st)
	}
}
