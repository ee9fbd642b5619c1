// Package db keeps berth's durable facts in one bbolt file.
//
// Writers hand over single values; many writers' values go to disk in one
// transaction (group commit), so that a hundred pods that record something at
// once wait for two or three syncs and not for a hundred. A transaction is
// written by whoever asks for durability first, so that a lone writer waits for
// one sync and nothing else; what nobody waits for is written by Run within
// MaxDelay. The typed accessors live with the owners of the facts.
package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// version is the layout of the file. Newer ones are refused.
const version = 1

const (
	metaBucket = "berth"
	versionKey = "version"
)

// Errors of Open.
var (
	// ErrInUse says that another process has the file open.
	ErrInUse = errors.New("in use by another process")
	// ErrNewer says that a newer berth wrote the file.
	ErrNewer = errors.New("written by a newer berth")
	// ErrDamaged says that the file holds no usable database.
	ErrDamaged = errors.New("the database is damaged")
)

// errPages says that pages of the file are not what bbolt wrote.
var errPages = errors.New("its pages hold something else")

// lockPatience is how long another process may keep the file locked.
const lockPatience = 500 * time.Millisecond

// Config says how a DB is kept. The zero value of an optional field means its
// default.
type Config struct {
	Path string // the file; its folder is made; required
	// Aside says that a damaged file is put aside, under this name and the time, with
	// a warning, and a new one begun. Empty: Open returns ErrDamaged, and touches nothing.
	Aside    string
	MaxDelay time.Duration // how long a value may stay in memory only; default 50 ms
	Retry    time.Duration // how long after a failed write it is tried again; default 1 s
	Log      *slog.Logger  // default: discard

	// refuse stands for a disk that refuses writes; tests only.
	refuse func() error
}

// DB is the open file. It is safe for concurrent use.
type DB struct {
	cfg  Config
	bolt *bbolt.DB
	wake chan struct{} // tells Run that something is pending; capacity 1

	// commit is held by the one who writes a transaction.
	commit chan struct{}

	mu      sync.Mutex
	pending map[key]*[]byte // values not yet on disk; nil: to be deleted
	writing map[key]*[]byte // what the transaction under way holds
	queued  uint64          // counts Put and Delete
	durable uint64          // all up to this one are on disk
	failed  error           // why the last transaction failed; nil: it did not
}

type key struct{ bucket, name string }

// Open opens the file, or makes it. One that is no database any more gives
// ErrDamaged, or is put aside: see Config.Aside.
func Open(cfg Config) (*DB, error) {
	if cfg.Path == "" {
		return nil, errors.New("db: Config.Path is required")
	}
	if cfg.MaxDelay <= 0 {
		cfg.MaxDelay = 50 * time.Millisecond
	}
	if cfg.Retry <= 0 {
		cfg.Retry = time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of database %s: %w", cfg.Path, err)
	}
	if cfg.Aside == "" && empty(cfg.Path) {
		return nil, fmt.Errorf("cannot use database %s: %w: it is empty", cfg.Path, ErrDamaged)
	}
	bolt, err := open(cfg.Path)
	if errors.Is(err, ErrDamaged) && cfg.Aside != "" {
		aside := fmt.Sprintf("%s%d", cfg.Aside, time.Now().Unix())
		cfg.Log.Error("the database is damaged; a new one is begun", "path", cfg.Path, "kept", aside, "err", err)
		if err := os.Rename(cfg.Path, aside); err != nil {
			return nil, fmt.Errorf("cannot put damaged database %s aside: %w", cfg.Path, err)
		}
		bolt, err = open(cfg.Path)
	}
	if err != nil {
		return nil, err
	}
	return &DB{
		cfg:     cfg,
		bolt:    bolt,
		wake:    make(chan struct{}, 1),
		commit:  make(chan struct{}, 1),
		pending: make(map[key]*[]byte),
	}, nil
}

func open(path string) (*bbolt.DB, error) {
	bolt, err := openWhole(path)
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("cannot open database %s: %w%s", path, ErrInUse, holder(path))
	case damaged(err):
		return nil, fmt.Errorf("cannot use database %s: %w: %w", path, ErrDamaged, err)
	case err != nil:
		return nil, fmt.Errorf("cannot open database %s: %w", path, err)
	}
	return bolt, nil
}

// openWhole opens the file once it is known that bbolt can read it.
func openWhole(path string) (bolt *bbolt.DB, err error) {
	if err := whole(path); err != nil {
		return nil, err
	}
	if !empty(path) {
		if err := readable(path); err != nil {
			return nil, err
		}
	}
	err = guarded(func() (err error) {
		bolt, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout:        lockPatience,
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := stamp(bolt); err != nil {
		return nil, errors.Join(err, bolt.Close())
	}
	return bolt, nil
}

// damaged says whether err means that the file holds no usable database.
func damaged(err error) bool {
	for _, kind := range []error{bolterrors.ErrInvalid, bolterrors.ErrChecksum, bolterrors.ErrVersionMismatch, errTorn, errPages} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// stamp checks the version of the layout, or writes it into a new file.
func stamp(bolt *bbolt.DB) error {
	return bolt.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(metaBucket))
		if err != nil {
			return err
		}
		var found int
		if v := b.Get([]byte(versionKey)); v != nil {
			if _, err := fmt.Sscanf(string(v), "%d", &found); err != nil {
				return fmt.Errorf("%w: its version %q is no number", errPages, v)
			}
		}
		if found > version {
			return fmt.Errorf("%w: its layout is version %d and this berth knows up to %d; use the newer berth", ErrNewer, found, version)
		}
		if found == version {
			return nil
		}
		return b.Put([]byte(versionKey), fmt.Appendf(nil, "%d", version))
	})
}

// Run writes what nobody waits for, until ctx ends; it then writes the rest. What
// can't be written then Close tries once more, and says so.
func (d *DB) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			_ = d.Sync(context.WithoutCancel(ctx))
			return nil
		case <-d.wake:
		}
		wait := d.cfg.MaxDelay
		for {
			if !sleep(ctx, wait) {
				break
			}
			err := d.Sync(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			d.cfg.Log.Warn("cannot write the database, it is tried again", "err", err, "retry", d.cfg.Retry)
			wait = d.cfg.Retry
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Close writes what is pending and closes the file. Nothing may be called
// after it.
func (d *DB) Close() error {
	return errors.Join(d.Sync(context.Background()), d.bolt.Close())
}
