package nodeapi

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
)

// pod finds a pod by name: the youngest, if one of that name is still ending.
func (s *Server) pod(namespace, name string) (*corev1.Pod, error) {
	var found *corev1.Pod
	for _, p := range s.cfg.Agent.Pods() {
		if p.Namespace == namespace && p.Name == name && (found == nil || found.DeletionTimestamp != nil) {
			found = p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %s/%s", agent.ErrNoPod, namespace, name)
	}
	return found, nil
}

func allContainers(s *corev1.PodStatus) []corev1.ContainerStatus {
	return slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses)
}

func containerStatus(s *corev1.PodStatus, name string) *corev1.ContainerStatus {
	for _, c := range allContainers(s) {
		if c.Name == name {
			return &c
		}
	}
	return nil
}

func hasContainer(spec *corev1.PodSpec, name string) bool {
	is := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(spec.InitContainers, is) || slices.ContainsFunc(spec.Containers, is)
}

// joinKey names a container for a log follower.
func joinKey(uid types.UID, container string) string { return string(uid) + "/" + container }
