package cri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/network"
	"github.com/berth-run/berth/internal/shim"
)

// fakeShim keeps containers in memory. A container ends when it gets SIGKILL, or
// any signal if its id is not in stubborn, or by exit.
type fakeShim struct {
	mu         sync.Mutex
	containers map[string]*shim.Status
	events     []chan shim.Event
	stubborn   bool                             // ignores all but SIGKILL
	signals    []syscall.Signal                 // sent, in order
	onCreate   func(id string) error            // before a creation takes effect
	onStart    func(id string) error            // before a start takes effect
	onList     func() error                     // before an answer is given
	onExec     func(shim.ExecRequest) shim.Exit // what exec does
	pid        int                              // of every container
	// onDeleteNotRun is called with the container, or nil, before it is looked at.
	onDeleteNotRun func(*shim.Status)
}

func newFakeShim() *fakeShim {
	return &fakeShim{containers: make(map[string]*shim.Status), pid: os.Getpid()}
}

func (f *fakeShim) Create(_ context.Context, r shim.CreateRequest) (shim.CreateResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.onCreate != nil {
		if err := f.onCreate(r.ID); err != nil {
			return shim.CreateResult{}, err
		}
	}
	if _, ok := f.containers[r.ID]; ok {
		return shim.CreateResult{}, shim.ErrExists
	}
	if _, err := readSpec(r.Bundle); err != nil {
		return shim.CreateResult{}, err
	}
	f.containers[r.ID] = &shim.Status{ID: r.ID, PID: f.pid, State: shim.Created, CreatedAt: time.Now()}
	return shim.CreateResult{PID: f.pid, CreatedAt: time.Now()}, nil
}

func (f *fakeShim) Start(_ context.Context, id string) (time.Time, error) {
	f.mu.Lock()
	hook := f.onStart
	f.mu.Unlock()
	if hook != nil {
		if err := hook(id); err != nil {
			return time.Time{}, err
		}
	}
	f.mu.Lock()
	st, ok := f.containers[id]
	if !ok {
		f.mu.Unlock()
		return time.Time{}, shim.ErrNotFound
	}
	st.State, st.StartedAt = shim.Running, time.Now()
	f.mu.Unlock()
	return st.StartedAt, nil
}

// exit ends a container and tells everybody.
func (f *fakeShim) exit(id string, e shim.Exit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st, ok := f.containers[id]
	if !ok || st.State == shim.Exited {
		return
	}
	st.State, st.Exit = shim.Exited, &e
	for _, ch := range f.events {
		ch <- shim.Event{Kind: shim.ContainerExited, ID: id, At: e.At, Exit: &e}
	}
}

func (f *fakeShim) Signal(_ context.Context, id string, sig syscall.Signal, all bool) error {
	f.mu.Lock()
	st, ok := f.containers[id]
	f.signals = append(f.signals, sig)
	ends := ok && st.State == shim.Running && (sig == syscall.SIGKILL || !f.stubborn)
	f.mu.Unlock()
	if !ok {
		return shim.ErrNotFound
	}
	if ends {
		f.exit(id, shim.Killed(sig, time.Now()))
	}
	return nil
}

// sent are the signals so far.
func (f *fakeShim) sent() []syscall.Signal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.signals)
}

func (f *fakeShim) Delete(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.containers, id)
	return nil
}

func (f *fakeShim) DeleteNotRun(ctx context.Context, id string) error {
	f.mu.Lock()
	if f.onDeleteNotRun != nil {
		f.onDeleteNotRun(f.containers[id])
	}
	st := f.containers[id]
	ran := st != nil && (st.State == shim.Running || !st.StartedAt.IsZero())
	f.mu.Unlock()
	if ran {
		return shim.ErrState
	}
	return f.Delete(ctx, id)
}

func (f *fakeShim) List(context.Context) ([]shim.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.onList != nil {
		if err := f.onList(); err != nil {
			return nil, err
		}
	}
	var out []shim.Status
	for _, st := range f.containers {
		out = append(out, *st)
	}
	return out, nil
}

func (f *fakeShim) Events(ctx context.Context, handle func(shim.Event)) error {
	ch := make(chan shim.Event, 1000)
	f.mu.Lock()
	f.events = append(f.events, ch)
	for id, st := range f.containers {
		if st.Exit != nil {
			ch <- shim.Event{Kind: shim.ContainerExited, ID: id, Exit: st.Exit}
		}
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = slices.DeleteFunc(f.events, func(c chan shim.Event) bool { return c == ch })
	}()
	for {
		select {
		case e := <-ch:
			handle(e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeShim) Exec(ctx context.Context, r shim.ExecRequest) (shim.Exit, error) {
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
	}
	if f.onExec != nil {
		return f.onExec(r), nil
	}
	<-ctx.Done()
	return shim.Killed(syscall.SIGKILL, time.Now()), ctx.Err()
}

func (f *fakeShim) Attach(context.Context, shim.AttachRequest) error { return nil }
func (f *fakeShim) ReopenLog(context.Context, string) error          { return nil }
func (f *fakeShim) Update(context.Context, string, *specs.LinuxResources) error {
	return nil
}
func (f *fakeShim) Stats(context.Context, string) (shim.Stats, error) {
	return shim.Stats{At: time.Now(), CPUUsage: 3 * time.Second, MemoryWorkingSetBytes: 10, MemoryLimitBytes: 30}, nil
}

func (f *fakeShim) DetailedStats(ctx context.Context, id string) (shim.Stats, error) {
	st, err := f.Stats(ctx, id)
	st.Details = &shim.Details{}
	return st, err
}

// GroupStats of a pod's cgroup: one under "gone" is.
func (f *fakeShim) GroupStats(_ context.Context, cgroup string) (shim.Stats, error) {
	if strings.Contains(cgroup, "gone") {
		return shim.Stats{}, shim.ErrNotFound
	}
	return shim.Stats{At: time.Now(), CPUUsage: 7 * time.Second, MemoryWorkingSetBytes: 70, Processes: 5}, nil
}

func (f *fakeShim) ids() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for id := range f.containers {
		out = append(out, id)
	}
	return out
}

// fakeImages has one image, whose layer is an empty folder.
type fakeImages struct {
	mu        sync.Mutex
	dir       string
	snapshots map[string]bool
	image     imagestore.Image
}

const testImage = "registry.example/app:1"

func newFakeImages(t *testing.T) *fakeImages {
	img := imagestore.Image{
		ID: "sha256:" + strings.Repeat("ab", 32), Tags: []string{testImage},
		Digests: []string{"registry.example/app@sha256:" + strings.Repeat("cd", 32)},
	}
	img.Spec.Config = imgspec.ImageConfig{Entrypoint: []string{"/app"}, StopSignal: "SIGQUIT"}
	return &fakeImages{dir: t.TempDir(), snapshots: make(map[string]bool), image: img}
}

func (f *fakeImages) Get(_ context.Context, ref string) (imagestore.Image, error) {
	if ref == testImage || ref == f.image.ID {
		return f.image, nil
	}
	return imagestore.Image{}, fmt.Errorf("%w: %s", imagestore.ErrNotFound, ref)
}

func (f *fakeImages) List(context.Context) ([]imagestore.Image, error) {
	return []imagestore.Image{f.image}, nil
}

func (f *fakeImages) Pull(ctx context.Context, ref string, _ *runtimeapi.AuthConfig, _ func(imagestore.Progress)) (imagestore.Image, error) {
	return f.Get(ctx, ref)
}
func (f *fakeImages) Remove(ctx context.Context, ref string) error {
	_, err := f.Get(ctx, ref)
	return err
}
func (f *fakeImages) Usage(context.Context) (imagestore.Usage, error) {
	return imagestore.Usage{ContentBytes: 1, LayerBytes: 2, ContentFiles: 3, LayerInodes: 4}, nil
}

func (f *fakeImages) Prepare(_ context.Context, key string, _ imagestore.Image, _ imagestore.SnapshotOptions) ([]mount.Mount, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snapshots[key] = true
	return []mount.Mount{{Type: "bind", Source: f.dir, Options: []string{"rbind", "rw"}}}, nil
}

func (f *fakeImages) View(ctx context.Context, key string, img imagestore.Image, o imagestore.SnapshotOptions) ([]mount.Mount, error) {
	return f.Prepare(ctx, key, img, o)
}

func (f *fakeImages) Release(_ context.Context, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.snapshots, key)
	return nil
}

func (f *fakeImages) Snapshots(context.Context) ([]imagestore.SnapshotInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []imagestore.SnapshotInfo
	for key := range f.snapshots {
		out = append(out, imagestore.SnapshotInfo{Key: key})
	}
	return out, nil
}

func (f *fakeImages) SnapshotUsage(context.Context, string) (bytes, inodes int64, err error) {
	return 4096, 1, nil
}

// fakeNetwork gives addresses and remembers who has one.
type fakeNetwork struct {
	mu   sync.Mutex
	pods map[string]network.Request
}

func newFakeNetwork() *fakeNetwork { return &fakeNetwork{pods: make(map[string]network.Request)} }

func (f *fakeNetwork) Setup(_ context.Context, r network.Request) (network.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !pinned(r.NetNS) {
		return network.Result{}, errors.New("there is no network namespace")
	}
	f.pods[r.ID] = r
	return network.Result{IPs: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3")}}, nil
}

func (f *fakeNetwork) Teardown(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, id)
	return nil
}

func (f *fakeNetwork) Reclaim(_ context.Context, live func(string) bool) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.pods)
	for id := range f.pods {
		if !live(id) {
			delete(f.pods, id)
		}
	}
	return n - len(f.pods), nil
}

func (f *fakeNetwork) Cleanup(context.Context) error { return nil }

func (f *fakeNetwork) Status(context.Context) network.Status { return network.Status{} }

func (f *fakeNetwork) UseRanges(context.Context, []netip.Prefix) error { return nil }

// fixture is a Service over fakes, with real namespaces and mounts.
type fixture struct {
	*Service
	shim    *fakeShim
	images  *fakeImages
	network *fakeNetwork
	run     string
	stop    func()
}

// createOne makes a sandbox with one container that is not started.
func (f *fixture) createOne(t *testing.T) (id string) {
	t.Helper()
	sb, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	if id, err = f.CreateContainer(t.Context(), sb, containerConfig("app"), nil); err != nil {
		t.Fatal(err)
	}
	return id
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	needsRoot(t)
	f := &fixture{shim: newFakeShim(), images: newFakeImages(t), network: newFakeNetwork(), run: t.TempDir()}
	f.reopen(t)
	t.Cleanup(func() {
		for _, c := range f.allContainers() {
			f.StopContainer(context.Background(), c.id, 0)
		}
		if err := f.Cleanup(context.Background()); err != nil {
			t.Errorf("cannot clean up: %v", err)
		}
		f.stop()
		f.wantNothing(t)
	})
	return f
}

// reopen replaces the Service by a new one on the same state, as if the process
// had been killed.
func (f *fixture) reopen(t *testing.T) {
	t.Helper()
	if f.stop != nil {
		f.stop()
	}
	s, err := New(Config{Run: f.run, Shim: f.shim, Images: f.images, Network: f.network, ShimBinary: "/bin/true", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Recover(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.Service = s
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	f.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// wantNothing checks that nothing is left of any sandbox or container.
func (f *fixture) wantNothing(t *testing.T) {
	t.Helper()
	if ids := f.shim.ids(); len(ids) > 0 {
		t.Errorf("the shim still has %v", ids)
	}
	if len(f.images.snapshots) > 0 {
		t.Errorf("snapshots are left: %v", f.images.snapshots)
	}
	if len(f.network.pods) > 0 {
		t.Errorf("networks are left: %v", f.network.pods)
	}
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, f.run) {
			t.Errorf("a mount is left: %s", line)
		}
	}
	for _, dir := range []string{"ns", "sandboxes", "containers", "state/sandboxes", "state/containers"} {
		entries, _ := os.ReadDir(f.run + "/" + dir)
		for _, e := range entries {
			t.Errorf("a file is left: %s/%s", dir, e.Name())
		}
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if len(f.sandboxes)+len(f.containers)+len(f.names) > 0 {
		t.Errorf("objects are left: %v %v %v", f.sandboxes, f.containers, f.names)
	}
}

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes namespaces and mounts")
	}
}

func sandboxConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Hostname:     name,
		Labels:       map[string]string{"app": name},
		Annotations:  map[string]string{"note": "kept"},
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"10.9.9.9"}, Searches: []string{"svc.local"}, Options: []string{"ndots:5"}},
		PortMappings: []*runtimeapi.PortMapping{{HostPort: 8080, ContainerPort: 80, HostIp: "127.0.0.1"}, {ContainerPort: 81}},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

func containerConfig(name string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: testImage},
		Labels:   map[string]string{"c": name},
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

// run makes a sandbox with one running container.
func (f *fixture) runOne(t *testing.T) (sandboxID, id string) {
	t.Helper()
	sandboxID, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	id, err = f.CreateContainer(t.Context(), sandboxID, containerConfig("app"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return sandboxID, id
}

func (f *fixture) statusOf(t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	r, err := f.ContainerStatus(t.Context(), id, false)
	if err != nil {
		t.Fatal(err)
	}
	return r.GetStatus()
}

func (f *fixture) awaitExit(t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	c, err := f.container(id)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.exited:
	case <-time.After(10 * time.Second):
		t.Fatalf("container %s does not end", id)
	}
	return f.statusOf(t, id)
}
