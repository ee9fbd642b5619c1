package cri

import (
	"context"
	"errors"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

// RemoveImage removes an image with all its names, whichever of them is given, as
// the CRI wants it. It succeeds if there is no such image. Containers that run on
// it keep their files.
func (s *Service) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	name := spec.GetImage()
	img, err := s.cfg.Images.Get(ctx, name)
	switch {
	case err == nil:
		name = img.ID
	case !errors.Is(err, imagestore.ErrNotFound): // of one that is incomplete, the name is left
		return lookupFailed(err)
	}
	if err := s.cfg.Images.Remove(ctx, name); err != nil && !errors.Is(err, imagestore.ErrNotFound) {
		return err
	}
	return nil
}
