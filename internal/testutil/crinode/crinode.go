// Package crinode makes what a CRI service runs on: a shim, an image store and a
// network, below one folder and one cgroup. It must not be used outside tests.
//
// It does not know the service itself, so that its own tests can use it.
package crinode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/network"
	"github.com/berth-run/berth/internal/shim"
)

// Needs skips a test that cannot run here.
func Needs(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs containers")
	}
	if testing.Short() {
		t.Skip("runs real containers")
	}
}

// Config says what a node is made of.
type Config struct {
	Bridge   string            // of the pods' network
	CIDR     netip.Prefix      // of the pods' network
	Programs map[string]string // built into the folder: name → package
}

// Service is a CRI service on a node.
type Service interface {
	Recover(ctx context.Context) error
	Run(ctx context.Context) error
	Cleanup(ctx context.Context) error
}

// Node is what a service runs on.
type Node struct {
	Dir     string // everything of the node
	Cgroup  string // path below each hierarchy
	Shim    *shim.Client
	Images  *imagestore.Store
	Network *network.Network

	cfg     Config
	service Service      // nil: none
	stop    func() error // ends Run of service
}

// Open builds the programs and starts everything but a service. Also after an
// error, Close takes away what there is.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{cfg: cfg}
	var err error
	// Short: the path of a unix socket has 108 bytes at most.
	if n.Dir, err = os.MkdirTemp("", "berth-cri-"); err != nil {
		return n, err
	}
	if err := os.Chmod(n.Dir, 0o711); err != nil { //nolint:gosec // user namespaces pass through
		return n, err
	}
	n.Cgroup = "/" + filepath.Base(n.Dir)
	if err := n.build(); err != nil {
		return n, err
	}
	if n.Images, err = imagestore.Open(imagestore.Config{Root: n.Path("images")}); err != nil {
		return n, err
	}
	return n, n.start(ctx)
}

// Path is a path below the node's folder.
func (n *Node) Path(name string) string { return filepath.Join(n.Dir, name) }

// ShimBinary is the path of the shim's program.
func (n *Node) ShimBinary() string { return n.Path("berth-shim") }

func (n *Node) build() error {
	err := build("1", "-tags", "seccomp netgo osusergo", "-ldflags", "-extldflags -static -s -w",
		"-o", n.ShimBinary(), "github.com/berth-run/berth/cmd/berth-shim")
	for name, pkg := range n.cfg.Programs {
		err = errors.Join(err, build("0", "-ldflags", "-s -w", "-o", n.Path(name), pkg))
	}
	return err
}

func build(cgo string, args ...string) error {
	cmd := exec.Command("go", append([]string{"build"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", args[len(args)-1], err, out)
	}
	return nil
}

func (n *Node) start(ctx context.Context) (err error) {
	n.Shim, err = shim.Ensure(ctx, shim.EnsureConfig{Binary: n.ShimBinary(), RunDir: n.Path("shim"), Cgroup: n.Cgroup + "/shim"})
	if err != nil {
		return err
	}
	n.Network, err = network.New(network.Config{StateDir: n.Path("network"), Bridge: n.cfg.Bridge, CIDR: n.cfg.CIDR})
	return err
}

// Serve runs a service.
func (n *Node) Serve(ctx context.Context, s Service) error {
	n.service = s
	if err := s.Recover(ctx); err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	n.stop = func() error { cancel(); return <-ended }
	return nil
}

// Restart kills the service, as far as that can be done within a process: it, its
// network and its connection go, nothing is told. Another can be served then.
func (n *Node) Restart(ctx context.Context) error {
	if err := errors.Join(n.stop(), n.Shim.Close(), n.Network.Close()); err != nil {
		return err
	}
	n.service, n.stop = nil, nil
	return n.start(ctx)
}

// Close removes all that the service and the node made, and calls late before it
// looks whether cgroups are left.
func (n *Node) Close(ctx context.Context, late ...func(context.Context) error) error {
	var errs []error
	if n.service != nil {
		errs = append(errs, n.service.Cleanup(ctx))
	}
	if n.stop != nil {
		errs = append(errs, n.stop())
	}
	if n.Shim != nil {
		errs = append(errs, n.Shim.Shutdown(ctx), n.Shim.Close())
	}
	if n.Images != nil {
		errs = append(errs, n.Images.Close())
	}
	for _, f := range late {
		errs = append(errs, f(ctx))
	}
	if n.Cgroup != "" {
		errs = append(errs, n.removeCgroups())
	}
	return errors.Join(append(errs, os.RemoveAll(n.Dir))...)
}

// removeCgroups removes the node's own groups, which must be empty.
func (n *Node) removeCgroups() error {
	groups, err := filepath.Glob("/sys/fs/cgroup/*" + n.Cgroup)
	for _, group := range append(groups, "/sys/fs/cgroup"+n.Cgroup) {
		for range 500 { // the shim may need a moment to be gone
			os.Remove(group + "/shim")
			if last := os.Remove(group); last == nil || errors.Is(last, fs.ErrNotExist) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, left := os.Stat(group); left == nil {
			entries, _ := filepath.Glob(group + "/*/")
			err = errors.Join(err, fmt.Errorf("cgroup %s is left, with %q in it", group, slices.Sorted(slices.Values(entries))))
		}
	}
	return err
}
