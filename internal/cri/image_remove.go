package cri

import (
	"context"
	"errors"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

// RemoveImage removes an image, or one name of it. It succeeds if there is no
// such image. Containers that run on it keep their files.
func (s *Service) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	err := s.cfg.Images.Remove(ctx, spec.GetImage())
	if errors.Is(err, imagestore.ErrNotFound) {
		return nil
	}
	return err
}
