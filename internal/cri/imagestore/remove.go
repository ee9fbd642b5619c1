package imagestore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
)

// Remove takes away a name, or an image. By id, or if it was the last tag, the
// image goes with all its names; by a tag or digest reference, only that name
// goes. Containers that run on the image keep their files. The error is
// ErrNotFound if there is nothing to remove.
func (s *Store) Remove(ctx context.Context, refOrID string) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	img, err := s.get(ctx, refOrID)
	if errors.Is(err, ErrNotFound) {
		// A record without usable data is not found, but can be removed.
		if name, nameErr := Normalize(refOrID); nameErr == nil && s.images.Delete(ctx, name) == nil {
			return s.collectGarbage(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot remove image: %w", err)
	}
	if err := s.removeNames(ctx, img, refOrID); err != nil {
		return err
	}
	return s.collectGarbage(ctx)
}

// removeNames deletes the records that Remove is to delete, and no data.
func (s *Store) removeNames(ctx context.Context, img Image, refOrID string) error {
	name, err := Normalize(refOrID)
	byTag := err == nil && slices.Contains(img.Tags, name)
	byDigest := err == nil && slices.Contains(img.Digests, name)
	if byTag && len(img.Tags) > 1 || byDigest && len(img.Tags)+len(img.Digests) > 1 {
		return s.deleteRecord(ctx, name)
	}
	return s.removeAll(ctx, img.ID)
}

// removeAll deletes every record of an image.
func (s *Store) removeAll(ctx context.Context, id string) error {
	records, err := s.images.List(ctx)
	if err != nil {
		return fmt.Errorf("cannot remove image %s: %w", id, err)
	}
	for _, r := range records {
		if f, err := s.describe(ctx, r.Target); err != nil || f.id.String() != id {
			continue
		}
		if err := s.deleteRecord(ctx, r.Name); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for target, f := range s.described {
		if f.id.String() == id {
			delete(s.described, target)
			delete(s.stacked, f.chainID)
		}
	}
	delete(s.lastUsed, id)
	s.log.Info("image removed", "id", id)
	return nil
}

func (s *Store) deleteRecord(ctx context.Context, name string) error {
	if err := s.images.Delete(ctx, name); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot remove image %q: %w", name, err)
	}
	return nil
}
