package cri

import (
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

	"github.com/berth-run/berth/internal/testutil/leak"
)

// shimPID finds the shim of the stack.
func (r *realStack) shimPID(t *testing.T) int {
	t.Helper()
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range list {
		raw, _ := os.ReadFile(path)
		if args := strings.Split(string(raw), "\x00"); len(args) > 1 && args[1] == "serve" && strings.HasPrefix(args[0], r.node.Dir+"/") {
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
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/image", Image: &runtimeapi.ImageSpec{Image: insideImage}, Readonly: true}}
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
	scope := leak.Scope{Dirs: []string{r.node.Path("run")}, Cgroup: r.node.Cgroup, Procs: []int{0, r.shimPID(t)}}
	before, goroutines := leak.Take(t, scope), runtime.NumGoroutine()
	for range 5 {
		cycle()
	}
	before.NoMore(t, scope)
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
	if pods := r.node.Network.List(); len(pods) > 0 {
		t.Errorf("the network still has %v", pods)
	}
	if snapshots, err := r.node.Images.Snapshots(t.Context()); err != nil || len(snapshots) > 0 {
		t.Errorf("%d snapshots are left, %v", len(snapshots), err)
	}
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
