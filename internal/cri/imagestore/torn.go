package imagestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// dropTorn removes what a killed process had begun and written no record of. Some
// of it would make every later try fail: the folder of a snapshot has the next
// free number, whoever made it. It must be called before the parts are opened,
// and by nobody else at the same time.
func (s *Store) dropTorn(ctx context.Context) error {
	return errors.Join(
		dropProbes(s.cfg.Root),
		dropTornIngests(filepath.Join(s.cfg.Root, "content", "ingest")),
		dropStraySnapshots(ctx, filepath.Join(s.cfg.Root, "snapshots", overlayName)),
		dropStraySnapshots(ctx, filepath.Join(s.cfg.Root, "snapshots", nativeName)),
	)
}

// dropProbes removes what trying out the file system left, and its mount.
func dropProbes(root string) error {
	var errs []error
	for _, pattern := range []string{"multiple-lowerdir-check*", "fsutils-dummy*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		errs = append(errs, err)
		for _, f := range found {
			merged := filepath.Join(f, "merged")
			if err := unix.Unmount(merged, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
				errs = append(errs, fmt.Errorf("cannot unmount %s: %w", merged, err))
				continue // nothing is removed through a mount
			}
			errs = append(errs, os.RemoveAll(f))
		}
	}
	return errors.Join(errs...)
}

// dropTornIngests removes partly written blobs that nobody could go on with:
// their own files don't say what they are.
func dropTornIngests(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if at := filepath.Join(dir, e.Name()); !wholeIngest(at) {
			errs = append(errs, os.RemoveAll(at))
		}
	}
	return errors.Join(errs...)
}

func wholeIngest(dir string) bool {
	if ref, err := os.ReadFile(filepath.Join(dir, "ref")); err != nil || len(ref) == 0 {
		return false
	}
	for _, name := range []string{"startedat", "updatedat"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		var at time.Time
		if err != nil || at.UnmarshalText(raw) != nil {
			return false
		}
	}
	_, err := os.Stat(filepath.Join(dir, "data"))
	return err == nil
}

// dropStraySnapshots removes the folders of snapshots that the snapshotter's
// database does not know.
func dropStraySnapshots(ctx context.Context, root string) error {
	entries, err := os.ReadDir(filepath.Join(root, "snapshots"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	ids, err := snapshotIDs(ctx, filepath.Join(root, "metadata.db"))
	if err != nil {
		return fmt.Errorf("cannot read which snapshots there are: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if _, known := ids[e.Name()]; !known {
			errs = append(errs, os.RemoveAll(filepath.Join(root, "snapshots", e.Name())))
		}
	}
	return errors.Join(errs...)
}

// snapshotIDs gives the names of the folders that a snapshotter knows.
func snapshotIDs(ctx context.Context, db string) (ids map[string]string, err error) {
	ms, err := storage.NewMetaStore(db)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ms.Close()) }()
	err = ms.WithTransaction(ctx, false, func(ctx context.Context) (err error) {
		ids, err = storage.IDMap(ctx)
		return err
	})
	if errdefs.IsNotFound(err) { // no snapshot was ever recorded
		return nil, nil
	}
	return ids, err
}
