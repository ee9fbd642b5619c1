package cri

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

// ListImages lists all images, or the one the filter names.
func (s *Service) ListImages(ctx context.Context, f *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	if ref := f.GetImage().GetImage(); ref != "" {
		img, err := s.cfg.Images.Get(ctx, ref)
		if errors.Is(err, imagestore.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, lookupFailed(err)
		}
		return []*runtimeapi.Image{criImage(img)}, nil
	}
	list, err := s.cfg.Images.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.Image
	for _, img := range list {
		out = append(out, criImage(img))
	}
	return out, nil
}

// ImageStatus describes an image. A missing one is no error: the answer is
// empty, as the CRI wants it.
func (s *Service) ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	img, err := s.cfg.Images.Get(ctx, spec.GetImage())
	if errors.Is(err, imagestore.ErrNotFound) {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, lookupFailed(err)
	}
	r := &runtimeapi.ImageStatusResponse{Image: criImage(img)}
	if verbose {
		raw, err := json.Marshal(map[string]any{"chainID": img.ChainID, "imageSpec": img.Spec})
		if err != nil {
			return nil, err
		}
		r.Info = map[string]string{"info": string(raw)}
	}
	return r, nil
}

// lookupFailed gives the error of a look-up by name its code.
func lookupFailed(err error) error {
	if errors.Is(err, imagestore.ErrInvalidReference) || errors.Is(err, imagestore.ErrAmbiguous) {
		return &codedError{codes.InvalidArgument, err}
	}
	return err
}

func criImage(img imagestore.Image) *runtimeapi.Image {
	out := &runtimeapi.Image{
		Id:          img.ID,
		RepoTags:    img.Tags,
		RepoDigests: img.Digests,
		Size:        uint64(img.Size),
		Pinned:      img.Pinned,
		// Equal for all names of the image, so it says none of them.
		Spec: &runtimeapi.ImageSpec{Image: img.ID, Annotations: img.Annotations},
	}
	// The user without its group: a number, else a name.
	user, _, _ := strings.Cut(img.Spec.Config.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		out.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		out.Username = user
	}
	return out
}
