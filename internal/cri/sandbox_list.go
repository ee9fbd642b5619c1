package cri

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

// allSandboxes lists the sandboxes, oldest first. Those still being made are
// left out.
func (s *Service) allSandboxes() []*sandbox {
	return s.sandboxesWhere(func(*sandbox) bool { return true })
}

// sandboxesWhere is allSandboxes, only those that ok says. ok must look at
// nothing that changes.
func (s *Service) sandboxesWhere(ok func(*sandbox) bool) []*sandbox {
	s.mu.RLock()
	var list []*sandbox
	for _, sb := range s.sandboxes {
		if ok(sb) {
			list = append(list, sb)
		}
	}
	s.mu.RUnlock()
	list = slices.DeleteFunc(list, func(sb *sandbox) bool { return sb.state() == store.SandboxMaking })
	slices.SortFunc(list, func(a, b *sandbox) int { return a.record().CreatedAt.Compare(b.record().CreatedAt) })
	return list
}

// ListPodSandbox lists the sandboxes that match every part of the filter.
func (s *Service) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	var out []*runtimeapi.PodSandbox
	for _, sb := range s.sandboxesWhere(func(sb *sandbox) bool {
		return strings.HasPrefix(sb.id, f.GetId()) && labelsMatch(f.GetLabelSelector(), sb.config.GetLabels())
	}) {
		st := sb.status()
		if f.GetState() != nil && f.GetState().GetState() != st.GetState() {
			continue
		}
		out = append(out, &runtimeapi.PodSandbox{
			Id:             st.GetId(),
			Metadata:       st.GetMetadata(),
			State:          st.GetState(),
			CreatedAt:      st.GetCreatedAt(),
			Labels:         st.GetLabels(),
			Annotations:    st.GetAnnotations(),
			RuntimeHandler: st.GetRuntimeHandler(),
		})
	}
	return out, nil
}

func labelsMatch(want, have map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// PodSandboxStatus describes a sandbox and its containers as of one moment.
func (s *Service) PodSandboxStatus(_ context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	sb, err := s.sandbox(id)
	if err != nil {
		return nil, err
	}
	r := &runtimeapi.PodSandboxStatusResponse{Timestamp: time.Now().UnixNano(), Status: sb.status()}
	for _, c := range s.containersOf(sb.id) {
		r.ContainersStatuses = append(r.ContainersStatuses, c.status())
	}
	if verbose {
		r.Info = verboseInfo(map[string]any{
			"sandbox":    sb.record(),
			"namespaces": s.namespacesOf(sb),
		})
	}
	return r, nil
}

// verboseInfo is what the CRI asks for: JSON under one key.
func verboseInfo(v any) map[string]string {
	raw, err := json.Marshal(v)
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	return map[string]string{"info": string(raw)}
}
