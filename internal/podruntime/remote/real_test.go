package remote

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/network"
	"github.com/berth-run/berth/internal/podconfig"
	"github.com/berth-run/berth/internal/podruntime/podruntimetest"
	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/volume"
)

// realStack is the embedded runtime as it is in berth. All tests share one,
// since building and starting it takes a while.
type realStack struct {
	once    sync.Once
	err     error
	dir     string
	cgroup  string
	shim    *shim.Client
	images  *imagestore.Store
	network *network.Network
	service *cri.Service
	runtime *Runtime
	stop    func() error
}

var stack realStack

// real gives the shared stack, or skips the test if this machine can't run it.
func real(t *testing.T) *realStack {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs containers")
	}
	if testing.Short() {
		t.Skip("runs real containers")
	}
	stack.once.Do(func() { stack.err = stack.open(context.Background()) })
	if stack.err != nil {
		t.Fatal(stack.err)
	}
	return &stack
}

// objects are ConfigMaps and Secrets; the tests have none.
type objects struct{}

func (objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (r *realStack) open(ctx context.Context) (err error) {
	if r.dir, err = os.MkdirTemp("", "berth-remote-"); err != nil {
		return err
	}
	r.cgroup = "/" + filepath.Base(r.dir)
	for _, b := range []struct {
		name, cgo string
		args      []string
	}{
		{"berth-shim", "1", []string{"-tags", "seccomp netgo osusergo", "-ldflags", "-extldflags -static -s -w"}},
		{"berth-demo", "0", []string{"-ldflags", "-s -w"}},
	} {
		cmd := exec.Command("go", append(append([]string{"build", "-o", filepath.Join(r.dir, b.name)}, b.args...), "../../../cmd/"+b.name)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+b.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build %s: %w\n%s", b.name, err, out)
		}
	}
	if r.images, err = imagestore.Open(imagestore.Config{Root: filepath.Join(r.dir, "images")}); err != nil {
		return err
	}
	if _, err := r.images.DemoImage(ctx, filepath.Join(r.dir, "berth-demo")); err != nil {
		return err
	}
	r.shim, err = shim.Ensure(ctx, shim.EnsureConfig{
		Binary: filepath.Join(r.dir, "berth-shim"), RunDir: filepath.Join(r.dir, "shim"), Cgroup: r.cgroup + "/shim",
	})
	if err != nil {
		return err
	}
	r.network, err = network.New(network.Config{
		StateDir: filepath.Join(r.dir, "network"), Bridge: "bremotetest", CIDR: netip.MustParsePrefix("10.214.0.0/16"),
	})
	if err != nil {
		return err
	}
	r.service, err = cri.New(cri.Config{
		Run: filepath.Join(r.dir, "run"), Shim: r.shim, Images: r.images, Network: r.network,
		ShimBinary: filepath.Join(r.dir, "berth-shim"), CgroupRoot: r.cgroup, ImagesDir: filepath.Join(r.dir, "images"),
	})
	if err != nil {
		return err
	}
	if err := r.service.Recover(ctx); err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.service.Run(running) }()
	r.stop = func() error { cancel(); return <-ended }
	r.runtime, err = r.restarted()
	return err
}

// restarted makes another Runtime on the stack, as a restarted agent does.
func (r *realStack) restarted() (*Runtime, error) {
	volumes, err := volume.New(volume.Config{Root: filepath.Join(r.dir, "root"), Sources: objects{}})
	if err != nil {
		return nil, err
	}
	return New(Config{
		Service: r.service, Images: r.service, Volumes: volumes, Sources: objects{},
		Facts: func(*corev1.Pod) podconfig.Facts {
			return podconfig.Facts{LogRoot: filepath.Join(r.dir, "logs"), CgroupParent: r.cgroup, MemoryBytes: 1 << 30}
		},
		Owner: "remote-test",
	})
}

func (r *realStack) close(ctx context.Context) error {
	if r.dir == "" {
		return nil
	}
	var errs []error
	if r.service != nil {
		errs = append(errs, r.service.Cleanup(ctx))
	}
	if r.stop != nil {
		errs = append(errs, r.stop())
	}
	if r.shim != nil {
		errs = append(errs, r.shim.Shutdown(ctx), r.shim.Close())
	}
	if r.images != nil {
		errs = append(errs, r.images.Close())
	}
	left, _ := filepath.Glob("/sys/fs/cgroup/*" + r.cgroup + "*")
	for _, dir := range append(left, "/sys/fs/cgroup"+r.cgroup) {
		for range 50 { // the shim may need a moment to be gone
			os.Remove(filepath.Join(dir, "shim"))
			os.Remove(dir)
			if _, err := os.Stat(dir); err != nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if _, err := os.Stat(dir); err == nil {
			errs = append(errs, fmt.Errorf("cgroup %s is left", dir))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// The embedded runtime keeps the contract.
func TestEmbeddedRuntimeKeepsTheContract(t *testing.T) {
	r := real(t)
	podruntimetest.Run(t, func(*testing.T) podruntimetest.Target {
		return podruntimetest.Target{
			Runtime: r.runtime, Image: imagestore.DemoName, Has: []podruntimetest.Ability{podruntimetest.Programs},
		}
	})
}
