package cri

import (
	"context"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

// allContainers lists the containers, oldest first. Those still being made are
// left out.
func (s *Service) allContainers() []*container {
	return s.containersWhere(func(*container) bool { return true })
}

// containersWhere is allContainers, only those that ok says. ok must look at
// nothing that changes.
func (s *Service) containersWhere(ok func(*container) bool) []*container {
	s.mu.RLock()
	var list []*container
	for _, c := range s.containers {
		if ok(c) {
			list = append(list, c)
		}
	}
	s.mu.RUnlock()
	return sortContainers(list)
}

// ListContainers lists the containers that match every part of the filter.
func (s *Service) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var out []*runtimeapi.Container
	// One pod's containers are asked for each time something happens to it: what
	// all others are like must not matter.
	for _, c := range s.containersWhere(func(c *container) bool {
		return strings.HasPrefix(c.id, f.GetId()) && strings.HasPrefix(c.sandboxID, f.GetPodSandboxId()) &&
			labelsMatch(f.GetLabelSelector(), c.config.GetLabels())
	}) {
		st := c.status()
		if f.GetState() != nil && f.GetState().GetState() != st.GetState() {
			continue
		}
		out = append(out, &runtimeapi.Container{
			Id:           c.id,
			PodSandboxId: c.sandboxID,
			Metadata:     st.GetMetadata(),
			Image:        st.GetImage(),
			ImageRef:     st.GetImageRef(),
			ImageId:      st.GetImageId(),
			State:        st.GetState(),
			CreatedAt:    st.GetCreatedAt(),
			Labels:       st.GetLabels(),
			Annotations:  st.GetAnnotations(),
		})
	}
	return out, nil
}

// InfoExitSignal is the key in a container's verbose information of the signal that
// ended it, a number: the CRI's status has no field for it.
const InfoExitSignal = "exitSignal"

// ContainerStatus describes a container.
func (s *Service) ContainerStatus(_ context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, err
	}
	r := &runtimeapi.ContainerStatusResponse{Status: c.status()}
	if verbose {
		info := map[string]any{"sandboxID": c.sandboxID, "pid": c.init(), "container": c.record()}
		if spec, err := readSpec(s.containerDir(c.id)); err == nil {
			info["runtimeSpec"] = spec
		}
		r.Info = verboseInfo(info)
		if sig := c.record().Signal; sig != 0 {
			r.Info[InfoExitSignal] = strconv.Itoa(int(sig))
		}
	}
	return r, nil
}

// running gives a container that runs.
func (s *Service) running(id string) (*container, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, err
	}
	if st := c.state(); st != store.ContainerRunning {
		return nil, notRunning(c.id, st)
	}
	return c, nil
}
