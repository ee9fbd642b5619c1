package cni

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/network"
	"github.com/berth-run/berth/internal/testutil/crinode"
)

// realStack is the embedded runtime with both networks. All tests share one, since
// building and starting it takes a while; each test has its own configurations.
type realStack struct {
	*cri.Service
	once   sync.Once
	err    error
	node   *crinode.Node
	config Config
	sw     *Switch
}

var stack realStack

// real gives the shared stack with the site of this test.
func real(t *testing.T) (*realStack, *site) {
	t.Helper()
	crinode.Needs(t)
	s := newSite(t)
	stack.once.Do(func() { stack.err = stack.open(context.Background()) })
	if stack.err != nil {
		t.Fatal(stack.err)
	}
	// The folders of the stack are those of the machine: what is in them is the test's.
	s.conf, s.state = stack.config.ConfDir, stack.config.StateDir
	s.empty()
	return &stack, s
}

func (r *realStack) open(ctx context.Context) (err error) {
	r.node, err = crinode.Open(ctx, crinode.Config{
		Bridge: "bunused", CIDR: netip.MustParsePrefix("10.86.0.0/24"),
		Programs: map[string]string{"berth-demo": "github.com/berth-run/berth/cmd/berth-demo"},
	})
	if err != nil {
		return err
	}
	if _, err := r.node.Images.DemoImage(ctx, r.node.Path("berth-demo")); err != nil {
		return err
	}
	r.config = Config{StateDir: r.node.Path("cni"), ConfDir: r.node.Path("net.d"), BinDirs: []string{r.node.Path("bin"), realPlugins}}
	if err := errors.Join(os.Mkdir(r.config.ConfDir, 0o755), os.Mkdir(r.config.BinDirs[0], 0o755)); err != nil {
		return err
	}
	return r.serve(ctx)
}

func (r *realStack) serve(ctx context.Context) (err error) {
	n := r.node
	r.sw, err = NewSwitch(SwitchConfig{
		By: Auto, CNI: r.config,
		Bridge: network.Config{StateDir: n.Path("bridge"), Bridge: "bcnireal", CIDR: netip.MustParsePrefix("10.85.0.0/24")},
	})
	if err != nil {
		return err
	}
	r.Service, err = cri.New(cri.Config{
		Run: n.Path("run"), Shim: n.Shim, Images: n.Images, Network: r.sw,
		ShimBinary: n.ShimBinary(), CgroupRoot: n.Cgroup, ImagesDir: n.Path("images"),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return n.Serve(ctx, r.Service)
}

// restart kills the service, as far as that can be done within a process.
func (r *realStack) restart(t *testing.T) {
	t.Helper()
	if err := errors.Join(r.node.Restart(t.Context()), r.sw.Close(), r.serve(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func (r *realStack) close(ctx context.Context) error {
	if r.node == nil {
		return nil
	}
	return r.node.Close(ctx)
}

// run runs a sandbox; it goes with the test.
func (r *realStack) run(t *testing.T, name string, ports ...*runtimeapi.PortMapping) (id string, config *runtimeapi.PodSandboxConfig) {
	t.Helper()
	config = &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "test", Uid: t.Name()},
		Hostname:     name,
		LogDirectory: t.TempDir(),
		PortMappings: ports,
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: r.node.Cgroup},
	}
	id, err := r.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.RemovePodSandbox(context.Background(), id); err != nil {
			t.Errorf("cannot remove sandbox %s: %v", name, err)
		}
	})
	return id, config
}

// start runs berth-demo in a sandbox.
func (r *realStack) start(t *testing.T, id string, config *runtimeapi.PodSandboxConfig, args ...string) (container string) {
	t.Helper()
	container, err := r.CreateContainer(t.Context(), id, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c" + strconv.FormatInt(time.Now().UnixNano(), 36)},
		Image:    &runtimeapi.ImageSpec{Image: imagestore.DemoName},
		Args:     args,
		Linux:    &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{}},
	}, config)
	if err == nil {
		err = r.StartContainer(t.Context(), container)
	}
	if err != nil {
		t.Fatal(err)
	}
	return container
}

// exec runs berth-demo in a container until it succeeds: a server needs a moment.
func (r *realStack) exec(t *testing.T, container string, args ...string) string {
	t.Helper()
	var text string
	for range 50 {
		out, errOut, err := r.ExecSync(t.Context(), container, append([]string{"/berth-demo"}, args...), 20*time.Second)
		if err == nil {
			return strings.TrimSpace(string(out))
		}
		text = err.Error() + ": " + string(errOut)
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%q fails: %s", args, text)
	return ""
}

// ips are the addresses of a sandbox as the CRI tells them, the primary first.
func (r *realStack) ips(t *testing.T, id string) (ips []string) {
	t.Helper()
	st, err := r.PodSandboxStatus(t.Context(), id, false)
	if err != nil {
		t.Fatal(err)
	}
	ips = append(ips, st.GetStatus().GetNetwork().GetIp())
	for _, more := range st.GetStatus().GetNetwork().GetAdditionalIps() {
		ips = append(ips, more.GetIp())
	}
	return ips
}

// ready is what the runtime says of its network.
func (r *realStack) ready(t *testing.T) (c *runtimeapi.RuntimeCondition, info map[string]string) {
	t.Helper()
	st, err := r.Status(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c = range st.GetStatus().GetConditions() {
		if c.GetType() == runtimeapi.NetworkReady {
			return c, st.GetInfo()
		}
	}
	t.Fatal("the network has no condition")
	return nil, nil
}

// files lists what the stack remembers of CNI networks.
func (r *realStack) files(t *testing.T) (left []string) {
	t.Helper()
	for _, pattern := range []string{"sandboxes/*", "cache/results/*"} {
		found, err := filepath.Glob(filepath.Join(r.config.StateDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	return left
}
