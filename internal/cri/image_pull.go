package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PullImage fetches an image and returns its id. Cancelling ctx stops the pull,
// unless others wait for the same one.
func (s *Service) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if spec.GetImage() == "" {
		return "", status.Error(codes.InvalidArgument, "cannot pull image: no image named")
	}
	img, err := s.cfg.Images.Pull(ctx, spec.GetImage(), auth, nil)
	if err != nil {
		return "", fmt.Errorf("cannot pull image %q: %w", spec.GetImage(), err)
	}
	return img.ID, nil
}
