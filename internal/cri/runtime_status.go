package cri

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// kubeAPIVersion is the version of the CRI's Version call itself.
	kubeAPIVersion = "0.1.0"
	criAPIVersion  = "v1"
)

// Version names the runtime.
func (s *Service) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version:           kubeAPIVersion,
		RuntimeName:       "berth",
		RuntimeVersion:    s.cfg.Version,
		RuntimeApiVersion: criAPIVersion,
	}, nil
}

// Status says whether containers can be run. The runtime is ready while the
// shim answers; the network is set up with the first sandbox.
func (s *Service) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	ready := &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Status: true}
	if _, err := s.cfg.Shim.List(ctx); err != nil {
		ready.Status, ready.Reason, ready.Message = false, "ShimNotReady", err.Error()
	}
	features := &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}
	r := &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			ready,
			{Type: runtimeapi.NetworkReady, Status: true},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{
			{Name: "", Features: features},
			{Name: runtimeHandler, Features: features},
		},
		Features: &runtimeapi.RuntimeFeatures{
			SupplementalGroupsPolicy:  true,
			UserNamespacesHostNetwork: true,
			MountOptions:              true,
		},
	}
	if verbose {
		r.Info = verboseInfo(map[string]any{
			"run":          s.cfg.Run,
			"cgroupRoot":   s.cfg.CgroupRoot,
			"unified":      s.host.Unified,
			"capabilities": s.host.Capabilities,
			"seccomp":      s.host.DefaultSeccomp != nil,
			"apparmor":     s.host.AppArmor,
		})
	}
	return r, nil
}

// RuntimeConfig says that cgroups are named by their paths.
func (s *Service) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS},
	}, nil
}

// UpdateRuntimeConfig takes the pod range of a cluster, which this runtime does
// not use: its network's range is set when it starts.
func (s *Service) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

func unsupported(what string) error {
	return status.Errorf(codes.Unimplemented, "%s is not supported by berth's embedded runtime", what)
}

// CheckpointContainer is not supported.
func (s *Service) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return unsupported("checkpointing a container")
}

// CheckpointPod is not supported.
func (s *Service) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) error {
	return unsupported("checkpointing a pod")
}

// RestorePod is not supported.
func (s *Service) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, unsupported("restoring a pod")
}
