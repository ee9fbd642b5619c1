package cri

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

// PullImage fetches an image and returns its id. Cancelling ctx stops the pull,
// unless others wait for the same one.
func (s *Service) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if spec.GetImage() == "" {
		return "", coded(codes.InvalidArgument, "cannot pull image: no image named")
	}
	img, err := s.cfg.Images.Pull(ctx, spec.GetImage(), auth, nil)
	if err != nil {
		return "", pullFailed(ctx.Err(), err)
	}
	return img.ID, nil
}

// pullCodes are the codes of the errors of a pull.
var pullCodes = []struct {
	err  error
	code codes.Code
}{
	{imagestore.ErrInvalidReference, codes.InvalidArgument},
	{imagestore.ErrMissing, codes.NotFound},
	{imagestore.ErrPlatform, codes.NotFound},
	{imagestore.ErrDenied, codes.Unauthenticated},
	{imagestore.ErrNoSpace, codes.ResourceExhausted},
	{imagestore.ErrNotImage, codes.FailedPrecondition},
	{imagestore.ErrDamaged, codes.DataLoss},
	{imagestore.ErrClosed, codes.Unavailable},
}

// pullFailed gives the error of a pull its code; given is what ended the caller's
// context, if something did. That comes first: a caller who does not wait any
// longer learns nothing of the registry.
//
// The kubelet knows an unavailable registry by how the text begins, and looks at
// the text only if the code says nothing.
func pullFailed(given, err error) error {
	switch {
	case errors.Is(given, context.DeadlineExceeded):
		return &codedError{codes.DeadlineExceeded, err}
	case given != nil:
		return &codedError{codes.Canceled, err}
	}
	for _, c := range pullCodes {
		if errors.Is(err, c.err) {
			return &codedError{c.code, err}
		}
	}
	if imagestore.Unavailable(err) {
		err = fmt.Errorf("%w: %w", crierrors.ErrRegistryUnavailable, err)
	}
	return &codedError{codes.Unknown, err}
}
