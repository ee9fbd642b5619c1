package shim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
)

func ptr[T any](v T) *T { return &v }

func TestOOMKillIsReported(t *testing.T) {
	n := newNode(t)
	ooms := make(chan shim.Event, 10)
	go func() {
		_ = n.Events(n.ctx, func(e shim.Event) {
			if e.Kind == shim.ContainerOOM {
				ooms <- e
			}
		})
	}()
	r := n.bundle("a", func(s *specs.Spec) {
		s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: ptr[int64](32 << 20), Swap: ptr[int64](32 << 20)}
	}, "alloc", "100")
	n.start(r)
	if e := n.wait("a"); !e.OOMKilled || e.Signal != 9 || e.Code != 137 {
		t.Errorf("exit is %+v", e)
	}
	if e := <-ooms; e.ID != "a" {
		t.Errorf("event is %+v", e)
	}
	r = n.bundle("b", nil, "exit", "137")
	n.start(r)
	if e := n.wait("b"); e.OOMKilled || e.Signal != 0 {
		t.Errorf("exit of one that only exits with 137 is %+v", e)
	}
}

func TestForkBombStaysInItsLimit(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", func(s *specs.Spec) { s.Linux.Resources.Pids = &specs.LinuxPids{Limit: ptr[int64](60)} }, "forks")
	n.start(r)
	n.until("the limit is reached", func() bool {
		s, err := n.Stats(n.ctx, "a")
		return err == nil && s.PIDsLimit == 60 && s.PIDs > 50
	})
	if err := n.Delete(n.ctx, "a"); err != nil {
		t.Fatal(err)
	}
}

func TestStatsAndUpdate(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", func(s *specs.Spec) {
		s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: ptr[int64](64 << 20)}
	}, "init")
	n.start(r)
	s, err := n.Stats(n.ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if s.MemoryLimitBytes != 64<<20 || s.MemoryUsageBytes == 0 || s.CPUUsage == 0 || s.PIDs == 0 || s.At.IsZero() {
		t.Errorf("stats %+v", s)
	}
	err = n.Update(n.ctx, "a", &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: ptr[int64](128 << 20)},
		CPU:    &specs.LinuxCPU{Quota: ptr[int64](50_000), Period: ptr[uint64](100_000)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = n.Stats(n.ctx, "a"); err != nil || s.MemoryLimitBytes != 128<<20 {
		t.Errorf("stats after the update %+v, %v", s, err)
	}
	// An exec, which needs the device rules, still works.
	if e, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("true")}); err != nil || e.Code != 0 {
		t.Errorf("exec after the update: %+v, %v", e, err)
	}
}

// Without CAP_SYS_RESOURCE what can't be had is not asked for; with it, it is had.
func TestLimitsBeyondOursDoNotFail(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", func(s *specs.Spec) {
		s.Process.OOMScoreAdj = ptr(-900)
		s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1 << 30, Hard: 1 << 30}}
	}, "true")
	var own syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	_, err := n.Create(n.ctx, r)
	if err != nil && !strings.Contains(err.Error(), "rlimit") {
		t.Fatal(err)
	}
	if err == nil && strings.Count(n.shimLog(), "CAP_SYS_RESOURCE is missing") > 1 {
		t.Errorf("warned more than once:\n%s", n.shimLog())
	}
}

func TestTwoHundredExitsAtOnce(t *testing.T) {
	n := newNode(t)
	const count = 200
	exits := make(chan shim.Event, 2*count)
	go func() {
		_ = n.Events(n.ctx, func(e shim.Event) {
			if e.Kind == shim.ContainerExited {
				exits <- e
			}
		})
	}()
	pid := n.shimPID()
	// What is opened once and for all is not a leak.
	n.start(n.bundle("warm", nil, "true"))
	<-exits
	if err := n.Delete(n.ctx, "warm"); err != nil {
		t.Fatal(err)
	}
	before := fds(t, pid)
	var wg sync.WaitGroup
	todo := make(chan int)
	for range 4 {
		wg.Go(func() {
			for i := range todo {
				r := n.bundle(fmt.Sprintf("c%d", i), nil, "sleep")
				r.LogPath = ""
				if _, err := n.Create(n.ctx, r); err != nil {
					t.Error(err)
				} else if _, err := n.Start(n.ctx, r.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range count {
		todo <- i
	}
	close(todo)
	wg.Wait()
	t.Logf("%d running: PSS of the shim %d KiB, %d descriptors", count, pss(t, pid, "Pss:"), fds(t, pid))
	list, err := n.List(n.ctx)
	if err != nil || len(list) != count {
		t.Fatalf("%d containers, %v", len(list), err)
	}
	for _, s := range list {
		if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	seen := map[string]bool{}
	for len(seen) < count {
		e := <-exits
		if e.Exit.Signal != 9 {
			t.Errorf("exit %+v", e.Exit)
		}
		seen[e.ID] = true
	}
	for _, s := range list {
		if err := n.Delete(n.ctx, s.ID); err != nil {
			t.Error(err)
		}
	}
	// Nothing leaks: descriptors, children, files.
	n.until("descriptors are closed", func() bool { return fds(t, pid) <= before+1 })
	if left := childrenOf(pid); len(left) > 0 {
		t.Errorf("children left: %v", left)
	}
	for _, dir := range []string{"containers", "libcontainer"} {
		if left, _ := filepath.Glob(filepath.Join(n.run, dir, "*")); len(left) > 0 {
			t.Errorf("left in %s: %q", dir, left)
		}
	}
}

func fds(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// pss is one line, such as "Pss:", of pid's proportional resident memory in KiB.
func pss(t testing.TB, pid int, field string) (kib int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, field) {
			_, _ = fmt.Sscanf(strings.TrimPrefix(line, field), "%d", &kib)
		}
	}
	return kib
}

// The client leaks nothing either.
func TestClientKeepsNoGoroutines(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "init"))
	run := func() {
		var out buffer
		if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("echo", "x"), Stdout: &out, Stderr: &out, Stdin: strings.NewReader("y")}); err != nil {
			t.Fatal(err)
		}
	}
	run()
	before := runtime.NumGoroutine()
	open := fds(t, os.Getpid())
	for range 20 {
		run()
	}
	n.until("goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	if now := fds(t, os.Getpid()); now > open {
		t.Errorf("%d descriptors, %d before", now, open)
	}
}
