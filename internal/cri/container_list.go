package cri

import (
	"context"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

// allContainers lists the containers, oldest first. Those still being made are
// left out.
func (s *Service) allContainers() []*container {
	s.mu.RLock()
	list := make([]*container, 0, len(s.containers))
	for _, c := range s.containers {
		list = append(list, c)
	}
	s.mu.RUnlock()
	return sortContainers(list)
}

// ListContainers lists the containers that match every part of the filter.
func (s *Service) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var out []*runtimeapi.Container
	for _, c := range s.allContainers() {
		st := c.status()
		if !strings.HasPrefix(c.id, f.GetId()) ||
			!strings.HasPrefix(c.sandboxID, f.GetPodSandboxId()) ||
			f.GetState() != nil && f.GetState().GetState() != st.GetState() ||
			!labelsMatch(f.GetLabelSelector(), st.GetLabels()) {
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
