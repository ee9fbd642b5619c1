package shim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
)

var (
	shimBinary   string
	nextBinary   string // of the same sources, with another version
	helperBinary string
	number       atomic.Uint64
)

// TestMain builds the shim and the program that runs in the containers. With
// BERTH_TEST_RACE=1 the shim is built with the race detector; its findings are in
// the shim's log, which a test then fails on.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		if os.Geteuid() != 0 {
			return m.Run() // each test skips by itself
		}
		dir, err := os.MkdirTemp("", "berth-shim-test")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		shimBinary = filepath.Join(dir, "berth-shim")
		nextBinary = filepath.Join(dir, "next", "berth-shim")
		helperBinary = filepath.Join(dir, "helper")
		for _, b := range []struct {
			out, pkg, cgo string
			args          []string
		}{
			{shimBinary, "../../cmd/berth-shim", "1", []string{"-tags", "seccomp netgo osusergo", "-ldflags", "-extldflags -static -s -w"}},
			{nextBinary, "../../cmd/berth-shim", "1", []string{"-tags", "seccomp netgo osusergo", "-ldflags", "-extldflags -static -s -w -X main.version=next"}},
			{helperBinary, "./testdata/helper", "0", nil},
		} {
			if b.cgo == "1" && os.Getenv("BERTH_TEST_RACE") != "" {
				b.args[3] = strings.ReplaceAll(b.args[3], "-extldflags -static", "")
				b.args = append(b.args, "-race") // slow, and not static: finds races in the shim
			}
			cmd := exec.Command("go", append(append([]string{"build", "-o", b.out}, b.args...), b.pkg)...)
			cmd.Env = append(os.Environ(), "CGO_ENABLED="+b.cgo)
			if out, err := cmd.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "cannot build %s: %v\n%s", b.pkg, err, out)
				return 1
			}
		}
		// What a killed shim leaves becomes our child, which no init reaps
		// behind the tests' backs.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// node is a shim on a run directory of its own, and a client.
type node struct {
	testing.TB
	*shim.Client
	dir    string // everything of the test
	run    string
	cgroup string // parent of all containers' cgroups
	ctx    context.Context
	// program runs the containers; nil: libcontainer.
	program *shim.Program
}

func newNode(t testing.TB) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes namespaces, cgroups and mounts")
	}
	// Short: the path of a unix socket has 108 bytes at most.
	dir, err := os.MkdirTemp("", "bs")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{TB: t, dir: dir, run: filepath.Join(dir, "run"), cgroup: fmt.Sprintf("/berth-shim-test-%d-%d", os.Getpid(), number.Add(1))}
	n.program = programOf(t, dir)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	n.ctx = ctx
	t.Cleanup(func() {
		defer cancel()
		var stop context.CancelFunc
		n.ctx, stop = context.WithTimeout(context.Background(), 20*time.Second)
		defer stop()
		n.cleanup()
	})
	n.Client = n.ensure()
	return n
}

func (n *node) config() shim.EnsureConfig {
	return shim.EnsureConfig{Binary: shimBinary, RunDir: n.run, Cgroup: n.cgroup + "/shim"}
}

func (n *node) ensure() *shim.Client {
	n.Helper()
	c, err := shim.Ensure(n.ctx, n.config())
	if err != nil {
		n.Fatalf("%v\n%s", err, n.shimLog())
	}
	return c
}

func (n *node) shimLog() string {
	b, _ := os.ReadFile(filepath.Join(n.run, shim.LogName))
	return string(b)
}

func (n *node) cleanup() {
	list, err := n.List(n.ctx)
	if err != nil {
		n.Errorf("cannot list at the end: %v", err)
	}
	for _, s := range list {
		if err := n.Delete(n.ctx, s.ID); err != nil {
			n.Errorf("cannot delete at the end: %v", err)
		}
	}
	pid := n.shimPID()
	if err := n.Shutdown(n.ctx); err != nil {
		n.Errorf("cannot shut down: %v", err)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	reap(pid)
	n.Close()
	if strings.Contains(n.shimLog(), "DATA RACE") || strings.Contains(n.shimLog(), "panic:") {
		n.Error("the shim has a data race or panicked")
	}
	if n.Failed() {
		n.Logf("shim's log:\n%s", n.shimLog())
	}
	n.removeCgroups()
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if strings.Contains(string(mounts), n.dir+"/") {
		for line := range strings.Lines(string(mounts)) {
			if f := strings.Fields(line); strings.HasPrefix(f[4], n.dir+"/") {
				n.Errorf("mount left behind: %s", f[4])
				_ = syscall.Unmount(f[4], syscall.MNT_DETACH)
			}
		}
	}
	if err := os.RemoveAll(n.dir); err != nil {
		n.Error(err)
	}
}

// removeCgroups removes the groups of this test, which are empty now.
func (n *node) removeCgroups() {
	var roots []string
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
		found, _ := filepath.Glob(pattern + n.cgroup)
		roots = append(roots, found...)
	}
	for _, root := range roots {
		// A group is busy for a moment after its last process or child group.
		var err error
		for range 500 {
			if err = syscall.Rmdir(filepath.Join(root, "shim")); err == nil || err == syscall.ENOENT {
				if err = syscall.Rmdir(root); err == nil {
					break
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
		if err != nil {
			left, _ := filepath.Glob(root + "/*/")
			n.Errorf("cgroup left behind: %s: %v %q", root, err, left)
		}
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// shimPID finds the process that holds the lock of the run directory.
func (n *node) shimPID() int {
	n.Helper()
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, e := range entries {
		b, err := os.ReadFile(e)
		if err != nil {
			continue
		}
		args := bytes.Split(b, []byte{0})
		if len(args) > 3 && string(args[1]) == "serve" && bytes.Contains(b, []byte("--run\x00"+n.run+"\x00")) && !bytes.Contains(b, []byte("--detach")) {
			pid, _ := strconv.Atoi(strings.Split(e, "/")[2])
			if alive(pid) {
				return pid
			}
		}
	}
	n.Fatalf("no shim serves %s\n%s", n.run, n.shimLog())
	return 0
}

// killShim kills the shim and waits until it is gone.
func (n *node) killShim() {
	n.Helper()
	pid := n.shimPID()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		n.Fatal(err)
	}
	reap(pid)
}

// reap waits for a shim, which is our child because its parent has ended.
func reap(pid int) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); got == pid || (err != nil && !alive(pid)) {
			return
		}
	}
}

// bundle makes a bundle whose root filesystem is the helper.
func (n *node) bundle(id string, change func(*specs.Spec), args ...string) shim.CreateRequest {
	n.Helper()
	dir := filepath.Join(n.dir, id)
	lower := filepath.Join(n.dir, "image")
	for _, d := range []string{lower + "/bin", lower + "/proc", lower + "/dev", lower + "/sys", lower + "/tmp", dir + "/upper", dir + "/work"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			n.Fatal(err)
		}
	}
	if err := os.Link(helperBinary, lower+"/bin/helper"); err != nil && !os.IsExist(err) {
		n.Fatal(err)
	}
	spec := &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: "rootfs"},
		Process: process(args...),
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: n.cgroup + "/" + id,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
			},
			Resources: &specs.LinuxResources{},
		},
	}
	if change != nil {
		change(spec)
	}
	b, err := json.Marshal(spec)
	if err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600); err != nil {
		n.Fatal(err)
	}
	return shim.CreateRequest{
		ID: id, Bundle: dir, LogPath: filepath.Join(dir, "log"),
		Rootfs: []shim.Mount{{Type: "overlay", Source: "overlay", Options: []string{
			"lowerdir=" + lower, "upperdir=" + dir + "/upper", "workdir=" + dir + "/work",
		}}},
	}
}

func process(args ...string) *specs.Process {
	caps := []string{"CAP_KILL", "CAP_CHOWN", "CAP_SYS_CHROOT"}
	return &specs.Process{
		Args: append([]string{"helper"}, args...), Env: []string{"PATH=/bin"}, Cwd: "/",
		Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
	}
}

// start creates and starts a container.
func (n *node) start(r shim.CreateRequest) {
	n.Helper()
	if _, err := n.Create(n.ctx, r); err != nil {
		n.Fatal(err)
	}
	if _, err := n.Start(n.ctx, r.ID); err != nil {
		n.Fatal(err)
	}
}

func (n *node) wait(id string) shim.Exit {
	n.Helper()
	e, err := n.Wait(n.ctx, id)
	if err != nil {
		n.Fatal(err)
	}
	return e
}

func (n *node) read(path string) string {
	n.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		n.Fatal(err)
	}
	return string(b)
}

// entries returns the log's entries without their times, which it checks.
func (n *node) entries(path string) []string {
	n.Helper()
	var list []string
	for line := range strings.Lines(n.read(path)) {
		stamp, rest, ok := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || !ok || !strings.HasSuffix(rest, "\n") {
			n.Fatalf("not a log entry: %q (%v)", line, err)
		}
		list = append(list, strings.TrimSuffix(rest, "\n"))
	}
	return list
}

// until waits for a condition that must come true.
func (n *node) until(what string, ok func() bool) {
	n.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			n.Fatalf("never happened: %s\n%s", what, n.shimLog())
		}
	}
}

// logHas waits until the log contains text.
func (n *node) logHas(path, text string) {
	n.Helper()
	n.until(fmt.Sprintf("%q in %s", text, path), func() bool {
		b, _ := os.ReadFile(path)
		return strings.Contains(string(b), text)
	})
}

// buffer is a writer for concurrent use.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
