package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/cgroup"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/network"
	"github.com/berth-run/berth/internal/cri/network/cni"
	"github.com/berth-run/berth/internal/home"
	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/version"
)

// Runtime is the embedded container runtime of a root with all it needs: what an
// Agent runs pods with, or others through the CRI. Use: OpenRuntime, Run for as
// long as anything is called, Close. It is safe for concurrent use.
type Runtime struct {
	cfg  Config
	log  *slog.Logger
	host host

	lock    *home.Lock
	closers closers
	images  *imagestore.Store
	shim    *shim.Client
	network *cni.Switch
	cgroups *cgroup.Tree
	cri     *cri.Service

	// mute is what is wrong with the shim; nil: it answers, as far as is known.
	mute atomic.Pointer[shim.MuteError]
}

// OpenRuntime opens the runtime for use through CRI alone, and takes over what an
// earlier one of the same root left running. A root that an Agent uses is
// refused: each would take the other's sandboxes for garbage. It starts nothing
// but the shim.
func OpenRuntime(ctx context.Context, cfg Config) (_ *Runtime, err error) {
	r, err := claim(ctx, cfg, home.CRI)
	if err != nil {
		return nil, err
	}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.closers.close())
	}
	return r, nil
}

// claim makes the root this process's.
func claim(ctx context.Context, cfg Config, use home.Use) (*Runtime, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if err := errors.Join(mustBeRoot(), cgroupsWritable()); err != nil {
		return nil, err
	}
	if cfg.anyUse {
		use = home.Any
	}
	lock, err := cfg.home.Claim(ctx, use)
	if err != nil {
		return nil, err
	}
	r := &Runtime{cfg: cfg, log: cfg.Log, lock: lock}
	r.closers.add(lock.Close)
	r.cfg.chooseRanges()
	if r.host, err = inspectHost(cfg.Bridge, cfg.home.Root); err != nil {
		return nil, errors.Join(err, r.closers.close())
	}
	return r, nil
}

// open brings up the runtime. What it opened closers closes, also after an error.
func (r *Runtime) open(ctx context.Context) (err error) {
	r.images, err = imagestore.Open(imagestore.Config{
		Root: r.cfg.home.Images(), Registries: imagestore.RegistryConfig{HostsDir: r.cfg.RegistriesDir}, Log: r.log,
	})
	if err != nil {
		return err
	}
	r.closers.add(r.images.Close)
	r.shim, err = shim.Ensure(ctx, shim.EnsureConfig{
		Binary: r.cfg.ShimBinary, RunDir: r.cfg.home.Shim(), Cgroup: r.cfg.CgroupRoot + "/shim", Log: r.log,
	})
	if err != nil {
		return err
	}
	r.closers.add(r.shim.Close)
	r.network, err = cni.NewSwitch(cni.SwitchConfig{
		By: r.cfg.NetworkBy, Fixed: r.cfg.ranged,
		Bridge: network.Config{
			StateDir: r.cfg.home.Network(), Bridge: r.cfg.Bridge, CIDR: r.cfg.CIDR, CIDR6: r.cfg.CIDR6, Log: r.log,
		},
		CNI: cni.Config{
			StateDir: r.cfg.home.CNI(), ConfDir: r.cfg.CNIConfDir, BinDirs: r.cfg.CNIBinDirs, Log: r.log,
		},
	})
	if err != nil {
		return err
	}
	r.closers.add(r.network.Close)
	if r.cgroups, err = cgroup.Open(cgroup.Config{Root: r.cfg.CgroupRoot, Log: r.log}); err != nil {
		return err
	}
	gc := r.cfg.GC
	if gc.ImageLimits != (imagestore.Thresholds{}) {
		gc.Images = r.images
	}
	r.cri, err = cri.New(cri.Config{
		GC: gc, Handlers: r.cfg.Handlers,
		Run: r.cfg.home.CRI(), Shim: r.shim, Images: r.images, Network: r.network,
		ShimBinary: r.cfg.ShimBinary, CgroupRoot: r.cfg.CgroupRoot, ImagesDir: r.cfg.home.Images(),
		LogMaxBytes: max(r.cfg.LogMaxBytes, 0), LogMaxFiles: r.cfg.LogMaxFiles, StreamAddr: r.cfg.StreamAddr,
		Version: version.String(), Log: r.log,
	})
	if err != nil {
		return err
	}
	r.closers.add(func() error { return r.cri.Close(context.Background()) })
	if err := r.cri.Recover(ctx); err != nil {
		return err
	}
	// Somebody may have taken rules or the bridge away while nobody looked.
	if err := r.network.Up(ctx); err != nil {
		r.log.Warn("cannot put the network of the pods that run right, it is tried again", "err", err)
	}
	return nil
}

// Ranges are those of the pods' addresses.
func (r *Runtime) Ranges() Ranges { return Ranges{r.cfg.CIDR, r.cfg.CIDR6} }

// CRI is the runtime for callers of the CRI.
func (r *Runtime) CRI() *cri.Service { return r.cri }

// Run keeps the runtime going until ctx ends. Containers run on.
func (r *Runtime) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	watchShim := func(ctx context.Context) error { return r.watchShim(ctx, func(*shim.MuteError) {}) }
	for _, run := range []func(context.Context) error{r.images.Run, r.cri.Run, r.keepNetwork, watchShim} {
		g.Go(func() error { return ignoreCancel(run(ctx)) })
	}
	return g.Wait()
}

// shimWait is how long the shim has to end when it is not needed any more.
const shimWait = 2 * time.Second

// Close frees all that was opened. Pods run on; if there is no container, the
// shim ends too, so that no process is left for nothing.
func (r *Runtime) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), shimWait)
	defer cancel()
	if err := r.shim.Shutdown(ctx); err != nil {
		r.log.Debug("the shim stays", "err", err) // it has containers
	}
	return r.closers.close()
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
