package imagestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// collectDelay is how long Run waits after something became free, so that many
// containers that go at once cost one collection.
const collectDelay = time.Second

// Usage is what the store occupies. What containers wrote is not in it, see
// SnapshotUsage.
type Usage struct {
	ContentBytes   int64 // blobs as they came from the registry
	ContentFiles   int64
	LayerBytes     int64 // unpacked layers
	LayerInodes    int64
	CapacityBytes  int64 // of the filesystem under Root
	AvailableBytes int64 // of it, for us
}

// Collected is what a collection or pruning removed.
type Collected struct {
	Images     []Victim
	FreedBytes int64 // of blobs and unpacked layers
}

// Run collects garbage soon after it arises, until ctx ends. Without it, space
// is freed by Collect, Prune and Remove only.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.garbage:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(collectDelay):
		}
		callCtx, leave, err := s.enter(ctx)
		if err != nil {
			return err
		}
		err = s.collectGarbage(callCtx)
		leave()
		if err != nil && ctx.Err() == nil {
			s.log.Warn("cannot free space, it is tried again with the next removal", "err", err)
		}
	}
}

// Collect removes images as Choose says, and everything that no image, no pull
// under way and no snapshot of a caller needs.
func (s *Store) Collect(ctx context.Context, inUse func(id string) bool, t Thresholds) (Collected, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Collected{}, err
	}
	defer leave()
	var victims []Victim
	freed, err := s.freeing(ctx, func() error {
		// Layers may be shared, so removing what should suffice may not.
		for {
			usage, err := s.diskUsage(ctx, inUse)
			if err != nil {
				return err
			}
			chosen := Choose(usage, inUse, t)
			if len(chosen) == 0 {
				return s.sweep(ctx)
			}
			for _, v := range chosen {
				if err := s.removeAll(ctx, v.ID); err != nil {
					return err
				}
				victims = append(victims, v)
			}
			if err := s.collectGarbage(ctx); err != nil {
				return err
			}
		}
	})
	return Collected{Images: victims, FreedBytes: freed}, err
}

// Prune removes images that have no tag, or all that are not in use, but no
// pinned ones.
func (s *Store) Prune(ctx context.Context, all bool, inUse func(id string) bool) (Collected, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Collected{}, err
	}
	defer leave()
	var victims []Victim
	freed, err := s.freeing(ctx, func() error {
		have, err := s.list(ctx)
		if err != nil {
			return err
		}
		for _, img := range have {
			if img.Pinned || inUse(img.ID) || !all && len(img.Tags) > 0 {
				continue
			}
			if err := s.removeAll(ctx, img.ID); err != nil {
				return err
			}
			reason := "unused"
			if len(img.Tags) == 0 {
				reason = "dangling"
			}
			victims = append(victims, Victim{ID: img.ID, Reason: reason})
		}
		return s.sweep(ctx)
	})
	return Collected{Images: victims, FreedBytes: freed}, err
}

// freeing measures what work frees.
func (s *Store) freeing(ctx context.Context, work func() error) (int64, error) {
	before, err := s.usage(ctx)
	if err != nil {
		return 0, err
	}
	workErr := work()
	after, err := s.usage(ctx)
	if err != nil {
		return 0, errors.Join(workErr, err)
	}
	freed := before.ContentBytes + before.LayerBytes - after.ContentBytes - after.LayerBytes
	return max(freed, 0), workErr
}

// diskUsage gathers what Choose wants to know. Images in use count as used now.
func (s *Store) diskUsage(ctx context.Context, inUse func(id string) bool) (DiskUsage, error) {
	have, err := s.list(ctx)
	if err != nil {
		return DiskUsage{}, err
	}
	u := DiskUsage{Now: time.Now()}
	if u.CapacityBytes, u.AvailableBytes, err = s.disk(); err != nil {
		return DiskUsage{}, err
	}
	for _, img := range have {
		if inUse(img.ID) {
			s.mu.Lock()
			s.lastUsed[img.ID] = u.Now
			s.mu.Unlock()
			img.LastUsed = u.Now
		}
		u.Images = append(u.Images, Candidate{
			ID: img.ID, SizeBytes: img.Size + s.layerBytes(ctx, img.ChainID), Pinned: img.Pinned, Known: img.Created, LastUsed: img.LastUsed,
		})
	}
	return u, nil
}

// layerBytes adds up the unpacked layers of an image, shared ones too.
func (s *Store) layerBytes(ctx context.Context, chainID string) (bytes int64) {
	for chainID != "" {
		info, err := s.snapshotter.Stat(ctx, chainID)
		if err != nil {
			return bytes
		}
		if u, err := s.snapshotter.Usage(ctx, chainID); err == nil {
			bytes += u.Size
		}
		chainID = info.Parent
	}
	return bytes
}

// Usage measures the store from its records, without walking files.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Usage{}, err
	}
	defer leave()
	return s.usage(ctx)
}

func (s *Store) usage(ctx context.Context) (u Usage, err error) {
	err = s.content.Walk(ctx, func(info content.Info) error {
		u.ContentBytes += info.Size
		u.ContentFiles++
		return nil
	})
	if err != nil {
		return Usage{}, fmt.Errorf("cannot measure image content: %w", err)
	}
	var layers []string
	err = s.snapshotter.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind == snapshots.KindCommitted {
			layers = append(layers, info.Name)
		}
		return nil
	})
	if err != nil {
		return Usage{}, fmt.Errorf("cannot measure layers: %w", err)
	}
	for _, l := range layers {
		lu, err := s.snapshotter.Usage(ctx, l)
		if err != nil {
			continue // removed meanwhile
		}
		u.LayerBytes += lu.Size
		u.LayerInodes += lu.Inodes
	}
	u.CapacityBytes, u.AvailableBytes, err = s.disk()
	return u, err
}

func (s *Store) disk() (capacity, available int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.cfg.Root, &st); err != nil {
		return 0, 0, fmt.Errorf("cannot measure the disk of %s: %w", s.cfg.Root, err)
	}
	// Blocks kept for root are neither ours nor used.
	return int64(st.Blocks-st.Bfree+st.Bavail) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}

// collectGarbage removes what nothing refers to.
func (s *Store) collectGarbage(ctx context.Context) error {
	if _, err := s.db.GarbageCollect(ctx); err != nil {
		return fmt.Errorf("cannot collect garbage of the image store: %w", err)
	}
	return nil
}

// sweep is collectGarbage that also finds files without a record, as a killed
// process leaves them. The database looks at the files only if something was
// removed since it was opened, so something is; on a full disk that cannot be.
func (s *Store) sweep(ctx context.Context) error {
	if err := s.touch(ctx); err != nil && !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("cannot sweep the image store: %w", err)
	}
	return s.collectGarbage(ctx)
}

// touch writes and removes a blob and a snapshot.
func (s *Store) touch(ctx context.Context) error {
	mark := []byte(uuid.NewString())
	desc := imgspec.Descriptor{Digest: digest.FromBytes(mark), Size: int64(len(mark))}
	if err := content.WriteBlob(ctx, s.content, string(mark), bytes.NewReader(mark), desc); err != nil {
		return explain(err)
	}
	// Another collection may be faster; then it has swept.
	if err := s.content.Delete(ctx, desc.Digest); err != nil && !errdefs.IsNotFound(err) {
		return explain(err)
	}
	key := "sweep/" + string(mark)
	if _, err := s.snapshotter.Prepare(ctx, key, ""); err != nil {
		return explain(err)
	}
	if err := s.snapshotter.Remove(ctx, key); err != nil && !errdefs.IsNotFound(err) {
		return explain(err)
	}
	return nil
}
