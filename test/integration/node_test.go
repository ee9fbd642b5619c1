package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/testutil/leak"
)

// cgroupPrefix begins the names of the tests' cgroups.
const cgroupPrefix = "/berth-it-"

// demoImage is what "image: demo" in the manifests of tests stands for.
const demoImage = "berth.local/demo:latest"

// patience is how long anything that must happen may take on a busy machine.
const patience = 90 * time.Second

// node is an agent under test and what it has told so far.
type node struct {
	cfg    agent.Config
	driver driver
	log    *os.File
	seen   *seen
}

// driver is a way to run an agent: in this process or in one of its own.
type driver interface {
	apply(o agent.Objects) ([]agent.Ref, error)
	remove(uid types.UID, grace *int64) error
	// stop detaches the agent from its pods and returns when it has ended.
	stop() error
}

var nodes atomic.Int64

// newConfig is a configuration that shares nothing with any other.
func newConfig(root string) (agent.Config, error) {
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		return agent.Config{}, err
	}
	for _, name := range []string{"berth-shim", "berth-demo"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return agent.Config{}, fmt.Errorf("%w: make build makes it", err)
		}
	}
	n := nodes.Add(1)
	return agent.Config{
		Root: root, Run: fmt.Sprintf("/run/it-%d", n), Bridge: fmt.Sprintf("it%d", n),
		CIDR:       netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 229, byte(n), 0}), 24),
		CgroupRoot: fmt.Sprintf("%s%s-%d", cgroupPrefix, os.Getenv(markEnv), n),
		ShimBinary: filepath.Join(bin, "berth-shim"), DemoBinary: filepath.Join(bin, "berth-demo"),
	}, nil
}

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces, mounts, cgroups and networks")
	}
	if testing.Short() {
		t.Skip("runs real containers")
	}
}

// newNode is a node for one test, with an agent in this process. When the test
// ends all pods are removed, and everything must be as it was before. The test
// must not be parallel to others.
func newNode(t *testing.T, change ...func(*agent.Config)) *node {
	t.Helper()
	n := newBareNode(t, change...)
	n.start(t)
	return n
}

// newBareNode is newNode without an agent.
func newBareNode(t *testing.T, change ...func(*agent.Config)) *node {
	t.Helper()
	needsRoot(t)
	cfg, err := newConfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&cfg)
	}
	before := leak.Take(t, leak.Scope{Procs: []int{0}})
	if err := os.Chmod(cfg.Root, 0o711); err != nil { //nolint:gosec // containers' users pass through it
		t.Fatal(err)
	}
	n := &node{cfg: cfg, seen: newSeen()}
	if n.log, err = os.CreateTemp("", "berth-it-*.log"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.halt(t)
		if err := n.cleanUp(); err != nil {
			t.Error(err)
		}
		before.NoMore(t, leak.Scope{
			Procs: []int{0}, Dirs: []string{cfg.Root, cfg.Run}, Cgroup: cfg.CgroupRoot,
			// The log is still open, and opencontainers/cgroups opens the root of the
			// cgroups once in the life of a process.
			Without: []string{n.log.Name(), "descriptor of this process on /sys/fs/cgroup"},
		})
		n.tellLog(t)
		n.log.Close()
		os.Remove(n.log.Name())
	})
	return n
}

// start runs an agent in this process.
func (n *node) start(t testing.TB) {
	t.Helper()
	n.cfg.Log = slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d, err := runInProcess(n.cfg, n.seen)
	if err != nil {
		t.Fatal(err)
	}
	n.driver = d
}

// halt stops the agent, if there is one; pods run on.
func (n *node) halt(t testing.TB) {
	t.Helper()
	if n.driver == nil {
		return
	}
	if err := n.driver.stop(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	n.driver = nil
}

// cleanUp removes all that agents of this node made.
func (n *node) cleanUp() error {
	cfg := n.cfg
	cfg.Log = slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	left, err := a.Cleanup(ctx)
	errs := []error{err}
	if len(left) > 0 {
		errs = append(errs, fmt.Errorf("the cleanup left %q", left))
	}
	for _, dir := range []string{cfg.Root, cfg.Run} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s is still there after the cleanup", dir))
		}
	}
	return errors.Join(errs...)
}

// tellLog shows the agent's log if the test has failed.
func (n *node) tellLog(t testing.TB) {
	if !t.Failed() {
		return
	}
	b, err := os.ReadFile(n.log.Name())
	if err != nil {
		t.Log(err)
	}
	const most = 40_000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	t.Logf("the agent's log:\n%s", b)
}

// scope is what a node may hold.
func (n *node) scope() leak.Scope {
	return leak.Scope{
		Dirs:   []string{filepath.Join(n.cfg.Root, "pods"), filepath.Join(n.cfg.Root, "logs"), filepath.Join(n.cfg.Root, "images"), n.cfg.Run},
		Cgroup: n.cfg.CgroupRoot,
	}
}

// shim connects to the node's shim.
func (n *node) shim(t testing.TB) *shim.Client {
	t.Helper()
	c, err := shim.Dial(t.Context(), filepath.Join(n.cfg.Run, "shim"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shimPID is the process of the node's shim.
func (n *node) shimPID(t testing.TB) int {
	t.Helper()
	var pid int
	eventually(t, func() error { // one that was killed is being replaced
		found, ok := n.findShim(t)
		if !ok {
			return errors.New("there is no shim")
		}
		pid = found
		return nil
	})
	return pid
}

func (n *node) findShim(t testing.TB) (pid int, ok bool) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		cmd, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && strings.Contains(string(cmd), "berth-shim\x00serve\x00--run\x00"+n.cfg.Run+"/shim\x00") {
			if _, err := fmt.Sscan(e.Name(), &pid); err == nil {
				return pid, true
			}
		}
	}
	return 0, false
}

// inProcess is an agent in this process.
type inProcess struct {
	agent  *agent.Agent
	cancel context.CancelFunc
	ended  sync.WaitGroup
	err    error // of Run; after ended
}

func runInProcess(cfg agent.Config, s *seen) (*inProcess, error) {
	a, err := agent.New(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &inProcess{agent: a, cancel: cancel}
	d.ended.Go(func() { d.err = a.Run(ctx) })
	d.ended.Go(func() {
		_ = a.Watch(ctx, func(u agent.Update, lost int) error { s.add(u); return nil })
	})
	return d, nil
}

func (d *inProcess) apply(o agent.Objects) ([]agent.Ref, error) {
	return d.agent.Apply(context.Background(), o)
}

func (d *inProcess) remove(uid types.UID, grace *int64) error {
	d.agent.DeleteUID(uid, grace)
	return nil
}

func (d *inProcess) stop() error {
	d.cancel()
	d.ended.Wait()
	return errors.Join(d.err, d.agent.Close())
}

// The node that tests share which do not disturb each other.
var shared struct {
	once     sync.Once
	node     *node
	err      error
	empty    leak.Snapshot // before there was a node
	idle     leak.Snapshot // with a node that has run a pod
	idleWith leak.Scope
}

// sharedNode is a node for tests that only run pods; they may be parallel.
func sharedNode(t *testing.T) *node {
	t.Helper()
	needsRoot(t)
	shared.once.Do(func() { shared.err = openShared(t) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() { shared.node.tellPodLog(t) })
	return shared.node
}

func openShared(t testing.TB) error {
	shared.empty = leak.Take(t, leak.Scope{})
	root, err := os.MkdirTemp("", "berth-it-shared-")
	if err != nil {
		return err
	}
	if err := os.Chmod(root, 0o711); err != nil { //nolint:gosec // containers' users pass through it
		return err
	}
	cfg, err := newConfig(root)
	if err != nil {
		return err
	}
	n := &node{cfg: cfg, seen: newSeen()}
	if n.log, err = os.CreateTemp("", "berth-it-*.log"); err != nil {
		return err
	}
	n.start(t)
	shared.node = n
	// The first pods make what later ones share: bridge, unpacked image, cgroups of
	// each class.
	for name, limits := range map[string]string{
		"first": "", "burstable": "resources: {requests: {cpu: 10m}}", "guaranteed": "resources: {limits: {cpu: 500m, memory: 64Mi}}",
	} {
		p := n.run(t, onePod(name, "args: [\"true\"]\n"+limits, "restartPolicy: Never"))
		p.succeeded(t)
		p.stop(t)
	}
	shared.idleWith = n.scope()
	// The shim keeps the compiled form of each seccomp filter; images stay.
	shared.idleWith.Without = []string{"memfd:berth-seccomp", "/images/"}
	shared.idleWith.Procs = []int{n.shimPID(t)}
	shared.idle = leak.Take(t, shared.idleWith)
	return nil
}

// closeShared removes the shared node and says what stayed of it.
func closeShared() error {
	n := shared.node
	if n == nil {
		return shared.err
	}
	defer os.Remove(n.log.Name())
	defer n.log.Close()
	t := &late{}
	if n.driver != nil {
		shared.idle.NoMore(t, shared.idleWith)
		n.halt(t)
	}
	t.note(n.cleanUp())
	shared.empty.NoMore(t, leak.Scope{Dirs: []string{n.cfg.Root, n.cfg.Run}, Cgroup: n.cfg.CgroupRoot})
	return errors.Join(t.errs...)
}

// late takes the failures that are found after the last test.
type late struct {
	testing.TB
	errs []error
}

func (l *late) note(err error)                 { l.errs = append(l.errs, err) }
func (l *late) Helper()                        {}
func (l *late) Errorf(format string, a ...any) { l.note(fmt.Errorf(format, a...)) }
func (l *late) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (l *late) Fatal(a ...any)                 { panic(fmt.Sprint(a...)) }
