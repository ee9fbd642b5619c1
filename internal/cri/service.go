package cri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/berth-run/berth/internal/cri/ocispec"
	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/cri/stream"
	"github.com/berth-run/berth/internal/shim"
)

// Config says what a Service works with. Empty optional fields mean their
// default.
type Config struct {
	// Run is the folder for state that ends with the machine; required, absolute.
	// The root user of a user namespace must be able to pass through its parents.
	Run     string
	Shim    Shim    // required
	Images  Images  // required
	Network Network // required

	ShimBinary string // berth-shim, run as the pause process of pods that share a pid namespace; absolute
	CgroupRoot string // parent of containers whose sandbox names none; default "/berth"
	ImagesDir  string // reported as the place of the image file system

	LogMaxBytes int64 // a container's log is rotated when it grows beyond; 0: never
	LogMaxFiles int   // files kept of a container's log, the current one included

	Handlers []RuntimeHandler // beside the built-in one

	GC GC // removes what is dead or unused; default: nothing

	StreamAddr string // where exec, attach and port-forward are served; default a free port of 127.0.0.1

	Version string       // reported by Version; default "unknown"
	Log     *slog.Logger // default: discard
}

func (c *Config) validate() error {
	var errs []error
	if !filepath.IsAbs(c.Run) {
		errs = append(errs, fmt.Errorf("cri: Config.Run is %q, want an absolute path", c.Run))
	}
	if c.Shim == nil {
		errs = append(errs, errors.New("cri: Config.Shim is required"))
	}
	if c.Images == nil {
		errs = append(errs, errors.New("cri: Config.Images is required"))
	}
	if c.Network == nil {
		errs = append(errs, errors.New("cri: Config.Network is required"))
	}
	if c.ShimBinary != "" && !filepath.IsAbs(c.ShimBinary) {
		errs = append(errs, fmt.Errorf("cri: Config.ShimBinary is %q, want an absolute path", c.ShimBinary))
	}
	return errors.Join(append(errs, c.GC.validate())...)
}

// Service is the runtime. It is safe for concurrent use. Use: New, Recover, then
// Run for as long as anything is called.
type Service struct {
	cfg      Config
	log      *slog.Logger
	host     ocispec.Host
	store    *store.Store
	handlers map[string]handler // by name; "" is the default
	// rebooted says that the run folder was written before the last boot.
	rebooted bool
	stream   *stream.Server
	events   *broadcaster
	warned   sync.Map // texts already logged once

	mu         sync.RWMutex          // guards the maps, never held across I/O
	sandboxes  map[string]*sandbox   // by id
	containers map[string]*container // by id
	names      map[string]string     // owner of a name (see names.go), by name

	background background // work that goes on after a call has returned

	// fault makes a step fail after it was done. Set only by tests, before use.
	fault func(step string) error
}

var (
	_ criapi.RuntimeService      = (*Service)(nil)
	_ criapi.ImageManagerService = (*Service)(nil)
)

// New reads the state in cfg.Run. It starts nothing. Close it, also without Run.
func New(cfg Config) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.CgroupRoot == "" {
		cfg.CgroupRoot = "/berth"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Version == "" {
		cfg.Version = "unknown"
	}
	if err := os.MkdirAll(cfg.Run, 0o711); err != nil {
		return nil, fmt.Errorf("cannot make run folder: %w", err)
	}
	host, err := inspectHost(cfg.CgroupRoot)
	if err != nil {
		return nil, err
	}
	handlers, err := inspectHandlers(cfg.Handlers)
	if err != nil {
		return nil, err
	}
	st, rebooted, err := store.Open(filepath.Join(cfg.Run, "state"))
	if err != nil {
		return nil, err
	}
	s := &Service{
		cfg:        cfg,
		log:        cfg.Log,
		host:       host,
		handlers:   handlers,
		store:      st,
		rebooted:   rebooted,
		events:     newBroadcaster(),
		sandboxes:  make(map[string]*sandbox),
		containers: make(map[string]*container),
		names:      make(map[string]string),
	}
	if s.stream, err = stream.Listen(stream.Config{Addr: cfg.StreamAddr, Runtime: streamRuntime{s}}); err != nil {
		return nil, err
	}
	return s, nil
}

// Run takes in what the shim reports and serves streams until ctx ends. It
// waits for work that goes on in the background.
func (s *Service) Run(ctx context.Context) error {
	defer s.background.Wait()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.cfg.Shim.Events(ctx, func(e shim.Event) { s.shimEvent(ctx, e) }) })
	g.Go(func() error { return s.stream.Run(ctx) })
	g.Go(func() error { return s.keepObserving(ctx) })
	if s.cfg.GC.Every > 0 {
		g.Go(func() error { return s.keepCollecting(ctx, s.cfg.GC) })
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Close frees what New holds open. Containers run on.
func (s *Service) Close(context.Context) error { return s.stream.Close() }

// warnOnce logs a text the first time it comes up.
func (s *Service) warnOnce(msg string, args ...any) {
	if _, known := s.warned.LoadOrStore(fmt.Sprint(msg, args), true); !known {
		s.log.Warn(msg, args...) //nolint:sloglint // callers give fixed texts
	}
}

// Where things are, below Config.Run.
func (s *Service) sandboxDir(id string) string   { return filepath.Join(s.cfg.Run, "sandboxes", id) }
func (s *Service) namespaceDir(id string) string { return filepath.Join(s.cfg.Run, "ns", id) }
func (s *Service) containerDir(id string) string { return filepath.Join(s.cfg.Run, "containers", id) }
