package cri

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/ocispec"
	"github.com/berth-run/berth/internal/cri/store"
)

// UpdateContainerResources changes the limits of a container that runs or is
// still to run. What the request leaves at zero stays as it is.
func (s *Service) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error {
	c, err := s.container(id)
	if err != nil {
		return err
	}
	release, err := c.turn.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if st := c.state(); st != store.ContainerRunning && st != store.ContainerCreated {
		return notRunning(c.id, st)
	}
	merged := mergeResources(c.record().Resources.P, r.GetLinux())
	limits, err := ocispec.Resources(merged, s.host)
	if err != nil {
		return fmt.Errorf("cannot update container %s: %w", c.id, err)
	}
	bundle := s.containerDir(c.id)
	spec, err := readSpec(bundle)
	if err != nil {
		return fmt.Errorf("cannot update container %s: %w", c.id, err)
	}
	if c.state() == store.ContainerRunning {
		if err := s.cfg.Shim.Update(ctx, c.id, limits); err != nil {
			return fmt.Errorf("cannot update container %s: %w", c.id, err)
		}
	}
	limits.Devices = spec.Linux.Resources.Devices
	spec.Linux.Resources = limits
	if err := writeSpec(bundle, spec); err != nil {
		return fmt.Errorf("cannot update container %s: %w", c.id, err)
	}
	return s.changeContainer(c, func(rec *store.Container) { rec.Resources.P = merged })
}

// mergeResources lays the set fields of over onto base. The list of huge pages
// replaces base's; of the unified settings each replaces its own.
func mergeResources(base, over *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	out := proto.CloneOf(base)
	if out == nil {
		out = &runtimeapi.LinuxContainerResources{}
	}
	if len(over.GetHugepageLimits()) > 0 {
		out.HugepageLimits = nil
	}
	proto.Merge(out, over)
	return out
}

// ReopenContainerLog makes the shim write to a new log file after the old one
// was moved away.
func (s *Service) ReopenContainerLog(ctx context.Context, id string) error {
	c, err := s.running(id)
	if err != nil {
		return err
	}
	return s.cfg.Shim.ReopenLog(ctx, c.id)
}

// UpdatePodSandboxResources has nothing to do: the limits of the whole pod are
// in its cgroup, which belongs to the caller, and no process of the sandbox has
// limits of its own.
func (s *Service) UpdatePodSandboxResources(_ context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	if _, err := s.sandbox(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
