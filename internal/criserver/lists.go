package criserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// chunkBytes is about how much of a list goes into one message of a stream.
const chunkBytes = 1 << 20

// sendChunks sends all of a list in messages of about chunkBytes, each with at
// least one item; nothing if the list is empty.
func sendChunks[T proto.Message, R any](items []T, stream grpc.ServerStreamingServer[R], message func([]T) *R) error {
	for len(items) > 0 {
		n, size := 0, 0
		for n < len(items) && (n == 0 || size+proto.Size(items[n]) <= chunkBytes) {
			size += proto.Size(items[n])
			n++
		}
		if err := stream.Send(message(items[:n])); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

func (s *runtimeServer) ListPodSandbox(ctx context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	all, err := s.runtime.ListPodSandbox(ctx, r.GetFilter())
	return &runtimeapi.ListPodSandboxResponse{Items: all}, err
}

func (s *runtimeServer) StreamPodSandboxes(r *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	all, err := s.runtime.ListPodSandbox(stream.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	return sendChunks(all, stream, func(some []*runtimeapi.PodSandbox) *runtimeapi.StreamPodSandboxesResponse {
		return &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: some}
	})
}

func (s *runtimeServer) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	all, err := s.runtime.ListContainers(ctx, r.GetFilter())
	return &runtimeapi.ListContainersResponse{Containers: all}, err
}

func (s *runtimeServer) StreamContainers(r *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	all, err := s.runtime.ListContainers(stream.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	return sendChunks(all, stream, func(some []*runtimeapi.Container) *runtimeapi.StreamContainersResponse {
		return &runtimeapi.StreamContainersResponse{Containers: some}
	})
}

func (s *runtimeServer) ListContainerStats(ctx context.Context, r *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	all, err := s.runtime.ListContainerStats(ctx, r.GetFilter())
	return &runtimeapi.ListContainerStatsResponse{Stats: all}, err
}

func (s *runtimeServer) StreamContainerStats(r *runtimeapi.StreamContainerStatsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	all, err := s.runtime.ListContainerStats(stream.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	return sendChunks(all, stream, func(some []*runtimeapi.ContainerStats) *runtimeapi.StreamContainerStatsResponse {
		return &runtimeapi.StreamContainerStatsResponse{ContainerStats: some}
	})
}

func (s *runtimeServer) ListPodSandboxStats(ctx context.Context, r *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	all, err := s.runtime.ListPodSandboxStats(ctx, r.GetFilter())
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: all}, err
}

func (s *runtimeServer) StreamPodSandboxStats(r *runtimeapi.StreamPodSandboxStatsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	all, err := s.runtime.ListPodSandboxStats(stream.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	return sendChunks(all, stream, func(some []*runtimeapi.PodSandboxStats) *runtimeapi.StreamPodSandboxStatsResponse {
		return &runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: some}
	})
}

func (s *runtimeServer) ListPodSandboxMetrics(ctx context.Context, _ *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	all, err := s.runtime.ListPodSandboxMetrics(ctx)
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: all}, err
}

func (s *runtimeServer) StreamPodSandboxMetrics(_ *runtimeapi.StreamPodSandboxMetricsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	all, err := s.runtime.ListPodSandboxMetrics(stream.Context())
	if err != nil {
		return err
	}
	return sendChunks(all, stream, func(some []*runtimeapi.PodSandboxMetrics) *runtimeapi.StreamPodSandboxMetricsResponse {
		return &runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: some}
	})
}
