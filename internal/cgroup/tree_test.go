package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// eaterEnv makes the test binary a process that uses memory when told to.
const eaterEnv = "BERTH_TEST_EATER"

func TestMain(m *testing.M) {
	if os.Getenv(eaterEnv) != "" {
		fmt.Println("ready")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		b := make([]byte, 256<<20)
		for i := range b {
			b[i] = 1
		}
		os.Exit(0)
	}
	if os.Getenv(boxedEnv) != "" {
		os.Exit(beBoxed())
	}
	os.Exit(m.Run())
}

var roots atomic.Int32

// open makes a Tree under a root of its own, removed at the end.
func open(t testing.TB) *Tree {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups")
	}
	tree, err := Open(Config{
		Root: fmt.Sprintf("/berth-test-%d-%d", os.Getpid(), roots.Add(1)),
		Log:  slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := tree.Cleanup(ctx); err != nil {
			t.Error(err)
		}
		for name, dir := range tree.layout.dirs(tree.root) {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("%s: %s was left: %v", name, dir, err)
			}
		}
	})
	return tree
}

// run starts a process in a group, in every hierarchy.
func run(t testing.TB, tree *Tree, group string, stdin io.Reader, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = stdin
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	join(t, tree, group, cmd.Process.Pid)
	return cmd
}

func join(t testing.TB, tree *Tree, group string, pid int) {
	t.Helper()
	m, err := tree.layout.manager(group, &cgroups.Resources{SkipDevices: true})
	if err == nil {
		err = m.Apply(pid)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// read returns a setting by the name it has in v1 or v2.
func read(t testing.TB, tree *Tree, controller, group, v1, v2 string) string {
	t.Helper()
	dir, file := tree.layout.dirs(group)[controller], v1
	if tree.Layout() == "v2" {
		dir, file = tree.layout.main(group), v2
	}
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestGroupsOfTheClasses(t *testing.T) {
	tree := open(t)
	t.Log("layout", tree.Layout(), "missing", tree.Missing())
	var want []Pod
	for qos, path := range map[corev1.PodQOSClass]string{
		corev1.PodQOSGuaranteed: "/poda", corev1.PodQOSBurstable: "/burstable/poda", corev1.PodQOSBestEffort: "/besteffort/poda",
	} {
		p, err := tree.Ensure("a", qos, Resources{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Path != tree.root+path {
			t.Errorf("%s: path %s, want %s", qos, p.Path, path)
		}
		want = append(want, p)
	}
	got, err := tree.List()
	if err != nil {
		t.Fatal(err)
	}
	byPath := cmp.Transformer("byPath", func(ps []Pod) map[string]Pod {
		m := map[string]Pod{}
		for _, p := range ps {
			m[p.Path] = p
		}
		return m
	})
	if diff := cmp.Diff(want, got, byPath); diff != "" {
		t.Error(diff)
	}
	for _, p := range got {
		for range 2 { // removing again is no error
			if err := tree.Remove(t.Context(), p); err != nil {
				t.Error(err)
			}
		}
	}
	if got, err := tree.List(); err != nil || len(got) != 0 {
		t.Errorf("left %v, %v", got, err)
	}
}

func TestLimitsAreSetAndLifted(t *testing.T) {
	tree := open(t)
	all := func(p Pod) string {
		return strings.Join([]string{
			read(t, tree, "cpu", p.Path, "cpu.shares", "cpu.weight"),
			read(t, tree, "cpu", p.Path, "cpu.cfs_quota_us", "cpu.max"),
			read(t, tree, "memory", p.Path, "memory.limit_in_bytes", "memory.max"),
			read(t, tree, "pids", p.Path, "pids.max", "pids.max"),
		}, " ")
	}
	want := map[bool][]string{
		false: {"512 50000 67108864 100", "2 -1 9223372036854771712 max"},
		true:  {"59 50000 100000 67108864 100", "1 max 100000 max max"},
	}[tree.Layout() == "v2"]
	for i, r := range []Resources{{CPUShares: 512, CPUQuotaMicros: 50_000, MemoryBytes: 64 << 20, Pids: 100}, {}} {
		p, err := tree.Ensure("a", corev1.PodQOSGuaranteed, r)
		if err != nil {
			t.Fatal(err)
		}
		if got := all(p); got != want[i] {
			t.Errorf("limits %q, want %q", got, want[i])
		}
	}
}

func TestBurstablePodsWeighTheirSum(t *testing.T) {
	tree := open(t)
	class := tree.root + "/burstable"
	weight := func() string { return read(t, tree, "cpu", class, "cpu.shares", "cpu.weight") }
	least := weight()
	var pods []Pod
	for _, uid := range []string{"a", "b"} {
		p, err := tree.Ensure(types.UID(uid), corev1.PodQOSBurstable, Resources{CPUShares: 1000})
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
	}
	if tree.Layout() != "v2" && weight() != "2000" {
		t.Errorf("weight %s, want 2000", weight())
	}
	for _, p := range pods {
		if err := tree.Remove(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if weight() != least {
		t.Errorf("weight %s with no pod left, want %s", weight(), least)
	}
}

// A container's group below the pod's, one process that ignores signals, and one
// that makes more of itself: all end.
func TestKillEndsAll(t *testing.T) {
	tree := open(t)
	p, err := tree.Ensure("a", corev1.PodQOSGuaranteed, Resources{Pids: 60})
	if err != nil {
		t.Fatal(err)
	}
	gate, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	run(t, tree, p.Path, nil, "sleep", "1000")
	run(t, tree, p.Path+"/container1", nil, "sh", "-c", "trap '' TERM HUP INT; while :; do sleep 1000; done")
	run(t, tree, p.Path+"/container2", gate, "sh", "-c", "read line; f() { f | f & }; f; while :; do f; done")
	if _, err := release.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	release.Close()
	for {
		s, err := tree.Stats(p.Path)
		if err != nil {
			t.Fatal(err)
		}
		if s.Pids >= 40 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	// Not removable while something lives, and the error says what.
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := tree.Remove(short, p); err == nil || !strings.Contains(err.Error(), "processes ") {
		t.Errorf("error %v, want one that names processes", err)
	}
	if err := tree.Kill(t.Context(), p.Path); err != nil {
		t.Fatal(err)
	}
	if pids, err := tree.Pids(p.Path); err != nil || len(pids) != 0 {
		t.Errorf("%d processes live on, %v", len(pids), err)
	}
	if err := tree.Remove(t.Context(), p); err != nil {
		t.Error(err)
	}
	if err := tree.Kill(t.Context(), p.Path); err != nil {
		t.Errorf("killing what is gone: %v", err)
	}
}

func TestStats(t *testing.T) {
	tree := open(t)
	p, err := tree.Ensure("a", corev1.PodQOSBurstable, Resources{})
	if err != nil {
		t.Fatal(err)
	}
	run(t, tree, p.Path+"/c", nil, "sh", "-c", "while :; do :; done")
	for {
		s, err := tree.Stats(p.Path)
		if err != nil {
			t.Fatal(err)
		}
		if s.CPU > 20*time.Millisecond && s.Pids == 1 && s.MemoryBytes >= s.WorkingSetBytes {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := tree.Stats(p.Path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

func TestOOMKills(t *testing.T) {
	tree := open(t)
	p, err := tree.Ensure("a", corev1.PodQOSBurstable, Resources{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := tree.OOMKills(p.Path); err != nil || n != 0 {
		t.Fatalf("%d, %v; want 0", n, err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), eaterEnv+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	join(t, tree, p.Path+"/c", cmd.Process.Pid)
	if _, err := tree.Ensure("a", corev1.PodQOSBurstable, Resources{MemoryBytes: 32 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(stdin, "eat\n"); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("it ended with %v, want SIGKILL", err)
	}
	if n, err := tree.OOMKills(p.Path); err != nil || n != 1 {
		t.Errorf("%d, %v; want 1", n, err)
	}
	if n, err := tree.OOMKills(p.Path + "x"); err != nil || n != 0 {
		t.Errorf("of a group that is not there: %d, %v; want 0", n, err)
	}
}

func TestHugePagesWithoutControllerAreNoError(t *testing.T) {
	tree := open(t)
	if _, err := tree.Ensure("a", corev1.PodQOSGuaranteed, Resources{HugePages: map[int64]int64{2 << 20: 8 << 20}}); err != nil {
		t.Error(err)
	}
}

func TestBadNames(t *testing.T) {
	for _, root := range []string{"/", "berth", "/a/../b", "/a/"} {
		if _, err := Open(Config{Root: root}); err == nil {
			t.Errorf("root %q was accepted", root)
		}
	}
	tree := open(t)
	for _, uid := range []string{"", "../x", "a/b"} {
		if _, err := tree.Ensure(types.UID(uid), corev1.PodQOSGuaranteed, Resources{}); err == nil {
			t.Errorf("uid %q was accepted", uid)
		}
	}
}

func TestNoWriteAccessSaysWhatToDo(t *testing.T) {
	for want, cause := range map[string]error{"run as root": unix.EACCES, "read-only": unix.EROFS} {
		err := explain(fmt.Errorf("wrapped: %w", &fs.PathError{Op: "mkdir", Path: "/sys/fs/cgroup/cpu/berth", Err: cause}))
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "no write access to /sys/fs/cgroup/cpu/berth") || !errors.Is(err, cause) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

func BenchmarkEnsureRemove(b *testing.B) {
	tree := open(b)
	for b.Loop() {
		p, err := tree.Ensure("a", corev1.PodQOSBurstable, Resources{CPUShares: 512, MemoryBytes: 64 << 20, Pids: 100})
		if err != nil {
			b.Fatal(err)
		}
		if err := tree.Remove(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
}

// A process that is in one hierarchy of v1 only, as one made while its parent was
// moved is, ends with the others.
func TestKillFindsProcessesInAnyHierarchy(t *testing.T) {
	tree := open(t)
	if tree.Layout() == "v2" {
		t.Skip("cgroup v2 has one hierarchy")
	}
	p, err := tree.Ensure("a", corev1.PodQOSGuaranteed, Resources{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan error, 1)
	go func() { reaped <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-reaped })
	procs := filepath.Join(tree.layout.memoryDir(p.Path), "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := tree.Kill(ctx, p.Path); err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(ctx, p); err != nil {
		t.Error(err)
	}
}
