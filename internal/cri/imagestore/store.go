package imagestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/diff/apply"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/containerd/v2/plugins/snapshots/native"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/go-digest"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sync/semaphore"
)

// namespace is the one we use of containerd's metadata database.
const namespace = "berth"

// Config says where images are kept and how they are fetched. The zero value
// of an optional field means its default.
type Config struct {
	Root        string         // folder of the store; required; made if missing
	Registries  RegistryConfig // how registries are reached
	MaxParallel int            // images pulled at once; default 4. Blobs: three times as many
	Log         *slog.Logger   // default: discard

	// Snapshotter forces "overlayfs" or "native". Empty: overlayfs where the
	// filesystem of Root can carry it, else native (copies; slow, but works).
	Snapshotter string
	// RetryDelay is the wait before a broken fetch is tried again; it doubles
	// with each try. Default 250 ms.
	RetryDelay time.Duration
	// MaxRetryAfter is how long, in sum, a request waits because the registry
	// asks for that with Retry-After. If it asks for more, the pull fails at
	// once, with ErrBusy. Default 2 min.
	MaxRetryAfter time.Duration
	// StallTimeout is how long a registry may send nothing before the request
	// is given up and tried again. Default 1 min.
	StallTimeout time.Duration
}

func (c *Config) validate() error {
	var errs []error
	if c.Root == "" {
		errs = append(errs, errors.New("imagestore: Config.Root is required"))
	}
	if c.MaxParallel == 0 {
		c.MaxParallel = 4
	}
	if c.MaxParallel < 0 {
		errs = append(errs, fmt.Errorf("imagestore: Config.MaxParallel is %d, want at least 1", c.MaxParallel))
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.RetryDelay == 0 {
		c.RetryDelay = 250 * time.Millisecond
	}
	if c.MaxRetryAfter == 0 {
		c.MaxRetryAfter = 2 * time.Minute
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = time.Minute
	}
	switch c.Snapshotter {
	case "", overlayName, nativeName:
	default:
		errs = append(errs, fmt.Errorf("imagestore: Config.Snapshotter is %q, want %q or %q", c.Snapshotter, overlayName, nativeName))
	}
	return errors.Join(errs...)
}

const (
	overlayName = "overlayfs" // the unpacker knows it by this name
	nativeName  = "native"
)

// Store keeps images and snapshots. All methods are safe for concurrent use.
type Store struct {
	cfg     Config
	log     *slog.Logger
	libLog  *log.Entry
	machine machine

	blobs           content.Store // the files; only for repairing, all else goes through content
	content         content.Store
	images          images.Store
	leases          leases.Manager
	db              *metadata.DB
	snapshotterName string
	snapshotter     snapshots.Snapshotter
	backend         snapshots.Snapshotter // under snapshotter; closed last
	applier         diff.Applier
	canMapIDs       bool

	pulls  *semaphore.Weighted // images being pulled
	fetchs *semaphore.Weighted // layers being fetched
	dedup  *keyedLock

	importing chan struct{} // has one element while an import writes blobs
	garbage   chan struct{} // has one element when there may be garbage; read by Run

	calls gate // calls that use the database

	mu        sync.Mutex
	closing   bool                     // guarded by mu; no pull starts any more
	flights   map[string]*flight       // guarded by mu; pulls under way
	described map[digest.Digest]*facts // guarded by mu; what manifests say, which never changes
	stacked   map[string]bool          // guarded by mu; chain ids seen unpacked, of images not removed since
	lastUsed  map[string]time.Time     // guarded by mu; by image id
}

// Open opens the store at cfg.Root and makes it if it is not there. It fails
// with ErrInUse if another process has it open.
func Open(cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Root, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make image store: %w", err)
	}
	s := &Store{
		cfg:       cfg,
		log:       cfg.Log,
		libLog:    newLibraryLogger(cfg.Log),
		machine:   thisMachine(),
		pulls:     semaphore.NewWeighted(int64(cfg.MaxParallel)),
		fetchs:    semaphore.NewWeighted(int64(cfg.MaxParallel) * 3),
		dedup:     newKeyedLock(),
		importing: make(chan struct{}, 1),
		garbage:   make(chan struct{}, 1),
		flights:   map[string]*flight{},
		described: map[digest.Digest]*facts{},
		stacked:   map[string]bool{},
		lastUsed:  map[string]time.Time{},
	}
	if err := s.openParts(); err != nil {
		return nil, fmt.Errorf("cannot open image store %s: %w", cfg.Root, err)
	}
	if err := s.forgetInterrupted(s.context(context.Background())); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open image store %s: %w", cfg.Root, err), s.closeParts())
	}
	return s, nil
}

func (s *Store) openParts() (err error) {
	bdb, err := bolt.Open(filepath.Join(s.cfg.Root, "metadata.db"), 0o600, &bolt.Options{
		Timeout:      time.Second,
		FreelistType: bolt.FreelistMapType,
		NoStatistics: true,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return ErrInUse
	}
	if err != nil {
		return fmt.Errorf("cannot open metadata.db (remove the folder to start anew): %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, bdb.Close())
		}
	}()
	if err := s.dropTorn(context.Background()); err != nil {
		return fmt.Errorf("cannot clear up after a former process: %w", err)
	}
	if s.blobs, err = local.NewStore(filepath.Join(s.cfg.Root, "content")); err != nil {
		return err
	}
	if err := s.openSnapshotter(); err != nil {
		return err
	}
	s.db = metadata.NewDB(bdb, s.blobs, map[string]snapshots.Snapshotter{s.snapshotterName: s.backend})
	if err := s.db.Init(context.Background()); err != nil {
		return errors.Join(err, s.backend.Close())
	}
	s.content = s.db.ContentStore()
	s.images = metadata.NewImageStore(s.db)
	s.leases = metadata.NewLeaseManager(s.db)
	s.snapshotter = s.db.Snapshotter(s.snapshotterName)
	s.applier = apply.NewFileSystemApplier(s.content)
	return nil
}

// openSnapshotter takes overlayfs if it works here.
func (s *Store) openSnapshotter() (err error) {
	root := filepath.Join(s.cfg.Root, "snapshots")
	if s.cfg.Snapshotter != nativeName {
		err = overlayutils.Supported(s.cfg.Root)
		if err == nil {
			s.snapshotterName = overlayName
			s.canMapIDs, _ = overlayutils.SupportsIDMappedMounts()
			opts := []overlay.Opt{overlay.AsynchronousRemove}
			if s.canMapIDs {
				opts = append(opts, overlay.WithRemapIDs)
			}
			s.backend, err = overlay.NewSnapshotter(filepath.Join(root, overlayName), opts...)
			return err
		}
		if s.cfg.Snapshotter == overlayName {
			return fmt.Errorf("cannot use overlayfs: %w", err)
		}
		s.log.Warn("overlayfs does not work here, layers are copied for each container", "root", s.cfg.Root, "err", err)
	}
	s.snapshotterName = nativeName
	s.backend, err = native.NewSnapshotter(filepath.Join(root, nativeName))
	return err
}

// forgetInterrupted ends the leases of pulls that a former process did not
// finish. What they had fetched stays until the next collection, for the next
// pull to use.
func (s *Store) forgetInterrupted(ctx context.Context) error {
	old, err := s.leases.List(ctx)
	if err != nil {
		return err
	}
	for _, l := range old {
		if err := s.leases.Delete(ctx, l); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// Close ends the pulls under way, waits for calls to return and closes the
// files. Calls after it fail with ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closing = true
	for _, f := range s.flights {
		f.cancel()
	}
	s.mu.Unlock()
	s.calls.close()
	return s.closeParts()
}

func (s *Store) closeParts() error {
	return errors.Join(s.db.Close(), s.backend.Close())
}

// Snapshotter says which one is in use: "overlayfs" or "native".
func (s *Store) Snapshotter() string { return s.snapshotterName }

// enter begins a call that uses the database. The returned function must be
// called at its end.
func (s *Store) enter(ctx context.Context) (context.Context, func(), error) {
	if !s.calls.enter() {
		return nil, nil, ErrClosed
	}
	return s.context(ctx), s.calls.leave, nil
}

// context adds what containerd's libraries look for in a context.
func (s *Store) context(ctx context.Context) context.Context {
	return log.WithLogger(namespaces.WithNamespace(ctx, namespace), s.libLog)
}

// noteGarbage tells Run that something may have become free.
func (s *Store) noteGarbage() {
	select {
	case s.garbage <- struct{}{}:
	default:
	}
}
