package imagestore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// keyPrefix sets the keys of our callers apart from the snapshots of layers.
const keyPrefix = "use/"

// labelRoot keeps a snapshot and what it stands on from garbage collection.
const labelRoot = "containerd.io/gc.root"

// SnapshotOptions says how a snapshot is to be used.
type SnapshotOptions struct {
	// UIDMap and GIDMap are the user namespace in which it will be used; files
	// of the image then belong to the mapped owners. Both empty: none.
	UIDMap, GIDMap []specs.LinuxIDMapping
}

func (o SnapshotOptions) mapped() bool { return len(o.UIDMap)+len(o.GIDMap) > 0 }

// SnapshotInfo is one snapshot made by Prepare or View and not yet released.
type SnapshotInfo struct {
	Key      string
	ChainID  string // of the image it was made of
	ReadOnly bool
	Created  time.Time
}

// Prepare makes a writable filesystem with the content of the image and gives
// the mounts that show it; it mounts nothing. The same key gives the same
// filesystem again, with what was written to it, until Release. The mounts of
// an id-mapped one carry the options uidmap= and gidmap=, which containerd's
// mount package understands and the kernel does not.
func (s *Store) Prepare(ctx context.Context, key string, img Image, o SnapshotOptions) ([]mount.Mount, error) {
	return s.snapshot(ctx, key, img, o, s.snapshotter.Prepare)
}

// View is Prepare for a read-only filesystem.
func (s *Store) View(ctx context.Context, key string, img Image, o SnapshotOptions) ([]mount.Mount, error) {
	return s.snapshot(ctx, key, img, o, s.snapshotter.View)
}

type snapshotMaker func(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error)

func (s *Store) snapshot(ctx context.Context, key string, img Image, o SnapshotOptions, create snapshotMaker) ([]mount.Mount, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if key == "" {
		return nil, fmt.Errorf("cannot prepare a snapshot of image %s: empty key", img.ID)
	}
	labels := map[string]string{labelRoot: time.Now().UTC().Format(time.RFC3339)}
	if o.mapped() {
		if !s.canMapIDs {
			return nil, ErrIDMapUnsupported
		}
		labels[snapshots.LabelSnapshotUIDMapping] = formatIDMap(o.UIDMap)
		labels[snapshots.LabelSnapshotGIDMapping] = formatIDMap(o.GIDMap)
	}
	mounts, err := create(ctx, keyPrefix+key, img.ChainID, snapshots.WithLabels(labels))
	if errdefs.IsAlreadyExists(err) {
		mounts, err = s.existing(ctx, key, img)
	}
	switch {
	case err == nil:
	case errdefs.IsNotFound(err):
		return nil, fmt.Errorf("cannot prepare snapshot %q: %w: the layers of image %s are gone", key, ErrNotFound, img.ID)
	default:
		return nil, fmt.Errorf("cannot prepare snapshot %q of image %s: %w", key, img.ID, explain(err))
	}
	s.use(img.ID)
	return mounts, nil
}

func (s *Store) existing(ctx context.Context, key string, img Image) ([]mount.Mount, error) {
	info, err := s.snapshotter.Stat(ctx, keyPrefix+key)
	if err != nil {
		return nil, err
	}
	if info.Parent != img.ChainID {
		return nil, ErrKeyInUse
	}
	return s.snapshotter.Mounts(ctx, keyPrefix+key)
}

// Release forgets the snapshot with that key and what was written to it. It is
// no error if there is none. The space is freed by Run or Collect.
func (s *Store) Release(ctx context.Context, key string) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.snapshotter.Remove(ctx, keyPrefix+key); err != nil {
		if errdefs.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("cannot release snapshot %q: %w", key, err)
	}
	s.noteGarbage()
	return nil
}

// Snapshots lists what Prepare and View made and Release has not removed, in
// the order of their keys.
func (s *Store) Snapshots(ctx context.Context) ([]SnapshotInfo, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var all []SnapshotInfo
	err = s.snapshotter.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if key, ours := strings.CutPrefix(info.Name, keyPrefix); ours {
			all = append(all, SnapshotInfo{
				Key: key, ChainID: info.Parent, ReadOnly: info.Kind == snapshots.KindView, Created: info.Created,
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list snapshots: %w", err)
	}
	return all, nil
}

// SnapshotUsage measures what was written to a snapshot. It walks the files
// and so may take long.
func (s *Store) SnapshotUsage(ctx context.Context, key string) (bytes, inodes int64, err error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	u, err := s.snapshotter.Usage(ctx, keyPrefix+key)
	if errdefs.IsNotFound(err) {
		return 0, 0, fmt.Errorf("%w: no snapshot %q", ErrNotFound, key)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("cannot measure snapshot %q: %w", key, err)
	}
	return u.Size, u.Inodes, nil
}

// leaseBlob adds a blob that was here before to the lease in ctx.
func (s *Store) leaseBlob(ctx context.Context, id digest.Digest) error {
	lease, ok := leases.FromContext(ctx)
	if !ok {
		return nil
	}
	return s.leases.AddResource(ctx, leases.Lease{ID: lease}, leases.Resource{ID: id.String(), Type: "content"})
}

// formatIDMap writes mappings as snapshotters read them from a label.
func formatIDMap(maps []specs.LinuxIDMapping) string {
	parts := make([]string, len(maps))
	for i, m := range maps {
		parts[i] = fmt.Sprintf("%d:%d:%d", m.ContainerID, m.HostID, m.Size)
	}
	return strings.Join(parts, ",")
}
