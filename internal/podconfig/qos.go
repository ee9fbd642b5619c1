package podconfig

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/berth-run/berth/internal/lifecycle"
)

// How the kernel ranks processes when memory runs out: 1000 dies first.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// systemCritical is the lowest priority of the system's own classes.
const (
	systemCritical     = 2 * 1000 * 1000 * 1000
	systemNodeCritical = "system-node-critical"
	staticSource       = "kubernetes.io/config.source"
	mirrorAnnotation   = "kubernetes.io/config.mirror"
)

// oomScoreAdj is the container's rank when memory runs out. A Burstable one is
// the safer the more it requests: one that requests a tenth of the machine gets
// 900, so that it dies first once it uses more than it requested.
func oomScoreAdj(pod *corev1.Pod, c *corev1.Container, machineBytes int64) int64 {
	if nodeCritical(pod) {
		return oomGuaranteed
	}
	switch lifecycle.QOSClass(pod) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	case corev1.PodQOSBurstable:
	}
	machineBytes = max(machineBytes, 1)
	share := unclaimedMemory(pod)
	score := 1000 - 1000*(c.Resources.Requests.Memory().Value()+share)/machineBytes
	if isSidecar(c) && len(pod.Spec.Containers) > 0 {
		// A sidecar must not die before the containers it serves (KEP-753).
		least := int64(math.MaxInt64)
		for i := range pod.Spec.Containers {
			least = min(least, pod.Spec.Containers[i].Resources.Requests.Memory().Value())
		}
		score = min(score, 1000-1000*(least+share)/machineBytes)
	}
	switch {
	case score < 1000+oomGuaranteed:
		return 1000 + oomGuaranteed
	case score >= oomBestEffort:
		return oomBestEffort - 1
	}
	return score
}

// unclaimedMemory is, in bytes, each container's even share of the pod-level
// memory request that no container requests for itself.
func unclaimedMemory(pod *corev1.Pod) int64 {
	if pod.Spec.Resources == nil || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	claimed := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	left := pod.Spec.Resources.Requests.Memory().Value() - claimed.Memory().Value()
	containers := int64(len(pod.Spec.Containers) + len(pod.Spec.InitContainers))
	return max(left, 0) / max(containers, 1)
}

// nodeCritical says whether the node itself depends on the pod.
func nodeCritical(pod *corev1.Pod) bool {
	if pod.Spec.PriorityClassName != systemNodeCritical {
		return false
	}
	if source, ok := pod.Annotations[staticSource]; ok && source != "api" {
		return true
	}
	if _, ok := pod.Annotations[mirrorAnnotation]; ok {
		return true
	}
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}
