package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageFsInfo says how much images take up on disk. Containers write to the same
// file system; what they wrote is in their stats.
func (s *Service) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	u, err := s.cfg.Images.Usage(ctx)
	if err != nil {
		return nil, err
	}
	fs := &runtimeapi.FilesystemUsage{
		Timestamp:  nowNanos(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: s.cfg.ImagesDir},
		UsedBytes:  uint64Value(uint64(u.ContentBytes + u.LayerBytes)),
		InodesUsed: uint64Value(uint64(u.ContentFiles + u.LayerInodes)),
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems:     []*runtimeapi.FilesystemUsage{fs},
		ContainerFilesystems: []*runtimeapi.FilesystemUsage{fs},
	}, nil
}
