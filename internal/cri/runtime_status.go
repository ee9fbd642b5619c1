package cri

import (
	"context"
	"fmt"
	"maps"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/network"
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

// networkNotReady is the reason of kubelets and other runtimes.
const networkNotReady = "NetworkPluginNotReady"

// Status says whether containers can be run. The runtime is ready while the
// shim answers, the network when a sandbox could be connected now.
func (s *Service) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	ready := &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Status: true}
	if _, err := s.cfg.Shim.List(ctx); err != nil {
		ready.Status, ready.Reason, ready.Message = false, "ShimNotReady", err.Error()
	}
	connected := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true}
	net := s.cfg.Network.Status(ctx)
	if net.Err != nil {
		connected.Status, connected.Reason, connected.Message = false, networkNotReady, net.Err.Error()
	}
	r := &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			ready, connected,
		}},
		RuntimeHandlers: s.runtimeHandlers(),
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
			"handlers":     s.cfg.Handlers,
		})
		maps.Copy(r.Info, net.Info)
	}
	return r, nil
}

// RuntimeConfig says that cgroups are named by their paths.
func (s *Service) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS},
	}, nil
}

// UpdateRuntimeConfig takes the ranges of addresses that a cluster has chosen for
// the pods of this node.
func (s *Service) UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) error {
	text := config.GetNetworkConfig().GetPodCidr()
	if text == "" {
		return nil
	}
	ranges, err := network.ParseRanges(text)
	if err != nil {
		return coded(codes.InvalidArgument, "cannot use the pod CIDR: %v", err)
	}
	if err := s.cfg.Network.UseRanges(ctx, ranges); err != nil {
		return fmt.Errorf("cannot use the pod CIDR %s: %w", text, err)
	}
	return nil
}

func unsupported(what string) error {
	return coded(codes.Unimplemented, "%s is not supported by berth's embedded runtime", what)
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
