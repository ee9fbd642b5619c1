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
	"golang.org/x/sys/unix"

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

// With CAP_SYS_RESOURCE a container has the limits and the OOM score that were
// asked for; without it, the best that the shim may give, and one warning says so.
// So has what is executed in it later.
func TestLimitsBeyondOursDoNotFail(t *testing.T) {
	n := newNode(t)
	pid := n.shimPID()
	// The shim's own limit, which is beyond what we ask for on most machines. Go
	// leaves this one alone, unlike that of open files.
	const ours = 40_000
	if err := unix.Prlimit(pid, unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: 1000, Max: ours}, nil); err != nil {
		t.Fatal(err)
	}
	var score int
	if _, err := fmt.Sscan(n.read(fmt.Sprintf("/proc/%d/oom_score_adj", pid)), &score); err != nil {
		t.Fatal(err)
	}
	score = max(score, -900)
	restricted := !hasCap(t, unix.CAP_SYS_RESOURCE)
	number := fmt.Sprint(unix.RLIMIT_MSGQUEUE)
	for name, c := range map[string]struct {
		soft, hard         uint64
		softGot, hardGot   uint64 // with the capability
		softLeft, hardLeft uint64 // without
	}{
		"below":     {10_000, 30_000, 10_000, 30_000, 10_000, 30_000},
		"beyond":    {60_000, 80_000, 60_000, 80_000, ours, ours},
		"hard-only": {20_000, 80_000, 20_000, 80_000, 20_000, ours},
	} {
		want := fmt.Sprintf("%d %d %d", c.softGot, c.hardGot, -900)
		if restricted {
			want = fmt.Sprintf("%d %d %d", c.softLeft, c.hardLeft, score)
		}
		limits := []specs.POSIXRlimit{{Type: "RLIMIT_MSGQUEUE", Soft: c.soft, Hard: c.hard}}
		r := n.bundle(name, func(s *specs.Spec) {
			s.Process.OOMScoreAdj, s.Process.Rlimits = ptr(-900), limits
		}, "init")
		n.start(r)
		p := process("limit", number)
		p.OOMScoreAdj, p.Rlimits = ptr(-900), limits
		var out buffer
		if e, err := n.Exec(n.ctx, shim.ExecRequest{ID: name, Process: p, Stdout: &out}); err != nil || e.Code != 0 {
			t.Errorf("%s: exec ends with %+v, %v", name, e, err)
		}
		if got := strings.TrimSpace(out.String()); got != want {
			t.Errorf("%s: an exec has %q, want %q", name, got, want)
		}
		r = n.bundle(name+"-first", func(s *specs.Spec) {
			s.Process.OOMScoreAdj, s.Process.Rlimits = ptr(-900), limits
		}, "limit", number)
		n.start(r)
		if e := n.wait(r.ID); e.Code != 0 {
			t.Errorf("%s: exit %+v", name, e)
		}
		if got := n.entries(r.LogPath); len(got) != 1 || got[0] != "stdout F "+want {
			t.Errorf("%s: the container has %q, want %q", name, got, want)
		}
	}
	warned := strings.Count(n.shimLog(), "CAP_SYS_RESOURCE is missing")
	if restricted && warned != 1 || !restricted && warned != 0 {
		t.Errorf("warned %d times:\n%s", warned, n.shimLog())
	}
}

// hasCap reports whether this process, and so the shim it starts, has a capability.
func hasCap(t *testing.T, number int) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[number/32].Effective&(1<<(number%32)) != 0
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
