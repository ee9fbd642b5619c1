package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Ending says of a pod that runs still, by its status alone, that it ends by itself:
// its main containers have ended, or an init container has failed, none starts again,
// and what runs is about to be stopped.
func Ending(spec *corev1.PodSpec, s *corev1.PodStatus) bool {
	all := slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses)
	if !slices.ContainsFunc(all, func(c corev1.ContainerStatus) bool { return c.State.Running != nil }) {
		return false
	}
	pod := &corev1.Pod{Spec: *spec}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if x := exitIn(s.InitContainerStatuses, c.Name); x != nil && x.failed() && !restarts(pod, c, *x) {
			return true
		}
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if x := exitIn(s.ContainerStatuses, c.Name); x == nil || restarts(pod, c, *x) {
			return false
		}
	}
	return true
}

// exitIn is how the container ended, nil if it has not.
func exitIn(statuses []corev1.ContainerStatus, name string) *Exit {
	for i := range statuses {
		if t := statuses[i].State.Terminated; t != nil && statuses[i].Name == name {
			return &Exit{Code: t.ExitCode, Unknown: t.Reason == ReasonContainerStatusUnknown}
		}
	}
	return nil
}
