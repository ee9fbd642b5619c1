package criserver

import (
	"context"

	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageServer is the ImageService of a runtime.
type imageServer struct {
	runtimeapi.UnsafeImageServiceServer
	images criapi.ImageManagerService
}

func (s *imageServer) ListImages(ctx context.Context, r *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	all, err := s.images.ListImages(ctx, r.GetFilter())
	return &runtimeapi.ListImagesResponse{Images: all}, err
}

func (s *imageServer) StreamImages(r *runtimeapi.StreamImagesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	all, err := s.images.ListImages(stream.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	return sendChunks(all, stream, func(some []*runtimeapi.Image) *runtimeapi.StreamImagesResponse {
		return &runtimeapi.StreamImagesResponse{Images: some}
	})
}

func (s *imageServer) ImageStatus(ctx context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return s.images.ImageStatus(ctx, r.GetImage(), r.GetVerbose())
}

func (s *imageServer) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref, err := s.images.PullImage(ctx, r.GetImage(), r.GetAuth(), r.GetSandboxConfig())
	return &runtimeapi.PullImageResponse{ImageRef: ref}, err
}

func (s *imageServer) RemoveImage(ctx context.Context, r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, s.images.RemoveImage(ctx, r.GetImage())
}

func (s *imageServer) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return s.images.ImageFsInfo(ctx)
}
