package criserver

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"
)

// runtimeServer is the RuntimeService of a runtime.
type runtimeServer struct {
	runtimeapi.UnsafeRuntimeServiceServer
	runtime criapi.RuntimeService
	ended   <-chan struct{} // closed when event streams are to end
}

func (s *runtimeServer) Version(ctx context.Context, r *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return s.runtime.Version(ctx, r.GetVersion())
}

func (s *runtimeServer) Status(ctx context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return s.runtime.Status(ctx, r.GetVerbose())
}

func (s *runtimeServer) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return s.runtime.RuntimeConfig(ctx)
}

func (s *runtimeServer) UpdateRuntimeConfig(ctx context.Context, r *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, s.runtime.UpdateRuntimeConfig(ctx, r.GetRuntimeConfig())
}

func (s *runtimeServer) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	id, err := s.runtime.RunPodSandbox(ctx, r.GetConfig(), r.GetRuntimeHandler())
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, err
}

func (s *runtimeServer) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, s.runtime.StopPodSandbox(ctx, r.GetPodSandboxId())
}

func (s *runtimeServer) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, s.runtime.RemovePodSandbox(ctx, r.GetPodSandboxId())
}

func (s *runtimeServer) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return s.runtime.PodSandboxStatus(ctx, r.GetPodSandboxId(), r.GetVerbose())
}

func (s *runtimeServer) UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return s.runtime.UpdatePodSandboxResources(ctx, r)
}

func (s *runtimeServer) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	id, err := s.runtime.CreateContainer(ctx, r.GetPodSandboxId(), r.GetConfig(), r.GetSandboxConfig())
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, err
}

func (s *runtimeServer) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, s.runtime.StartContainer(ctx, r.GetContainerId())
}

func (s *runtimeServer) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, s.runtime.StopContainer(ctx, r.GetContainerId(), r.GetTimeout())
}

func (s *runtimeServer) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, s.runtime.RemoveContainer(ctx, r.GetContainerId())
}

func (s *runtimeServer) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return s.runtime.ContainerStatus(ctx, r.GetContainerId(), r.GetVerbose())
}

func (s *runtimeServer) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, s.runtime.UpdateContainerResources(ctx, r.GetContainerId(),
		&runtimeapi.ContainerResources{Linux: r.GetLinux(), Windows: r.GetWindows()})
}

func (s *runtimeServer) ReopenContainerLog(ctx context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, s.runtime.ReopenContainerLog(ctx, r.GetContainerId())
}

// ExecSync gives the exit code of a command that failed as an answer, not as an
// error.
func (s *runtimeServer) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	if r.GetTimeout() < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "cannot execute: the time-out is %d seconds, want 0 (none) or more", r.GetTimeout())
	}
	stdout, stderr, err := s.runtime.ExecSync(ctx, r.GetContainerId(), r.GetCmd(), time.Duration(r.GetTimeout())*time.Second)
	resp := &runtimeapi.ExecSyncResponse{Stdout: stdout, Stderr: stderr}
	var exit utilexec.CodeExitError
	if errors.As(err, &exit) {
		resp.ExitCode, err = int32(exit.Code), nil //nolint:gosec // an exit code
	}
	return resp, err
}

func (s *runtimeServer) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return s.runtime.Exec(ctx, r)
}

func (s *runtimeServer) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return s.runtime.Attach(ctx, r)
}

func (s *runtimeServer) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return s.runtime.PortForward(ctx, r)
}

func (s *runtimeServer) ContainerStats(ctx context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	st, err := s.runtime.ContainerStats(ctx, r.GetContainerId())
	return &runtimeapi.ContainerStatsResponse{Stats: st}, err
}

func (s *runtimeServer) PodSandboxStats(ctx context.Context, r *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	st, err := s.runtime.PodSandboxStats(ctx, r.GetPodSandboxId())
	return &runtimeapi.PodSandboxStatsResponse{Stats: st}, err
}

func (s *runtimeServer) ListMetricDescriptors(ctx context.Context, _ *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	all, err := s.runtime.ListMetricDescriptors(ctx)
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: all}, err
}

func (s *runtimeServer) CheckpointContainer(ctx context.Context, r *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return &runtimeapi.CheckpointContainerResponse{}, s.runtime.CheckpointContainer(ctx, r)
}

func (s *runtimeServer) CheckpointPod(ctx context.Context, r *runtimeapi.CheckpointPodRequest) (*runtimeapi.CheckpointPodResponse, error) {
	return &runtimeapi.CheckpointPodResponse{}, s.runtime.CheckpointPod(ctx, r)
}

func (s *runtimeServer) RestorePod(ctx context.Context, r *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return s.runtime.RestorePod(ctx, r)
}

// GetContainerEvents sends events until the caller or the server leaves. The
// header of the stream is sent once no later event is missed.
func (s *runtimeServer) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	events := make(chan *runtimeapi.ContainerEventResponse)
	done := make(chan error, 1)
	go func() {
		done <- s.runtime.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) {
			if err := stream.SendHeader(metadata.MD{}); err != nil {
				cancel(err)
			}
		})
	}()
	for {
		select {
		case e := <-events:
			if err := stream.Send(e); err != nil {
				cancel(err)
				<-done
				return err
			}
		case err := <-done:
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		case <-s.ended:
			cancel(status.Error(codes.Unavailable, "the runtime's server ends"))
			return errors.Join(context.Cause(ctx), ignoreEnd(<-done))
		}
	}
}

func ignoreEnd(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
