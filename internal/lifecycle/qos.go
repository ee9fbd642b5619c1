package lifecycle

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// QOSClass is the pod's quality of service class, by the API's rules: Guaranteed
// when each container has equal requests and limits for cpu and memory,
// BestEffort when none has any, else Burstable. Pod-level resources, where
// given, count alone. Defaulting has made a limit the request of who named none.
//
// All of berth asks here. Upstream's helper reads global feature gates.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass {
	var all []corev1.ResourceRequirements
	if r := pod.Spec.Resources; r != nil && (hasPodLevel(r.Requests) || hasPodLevel(r.Limits)) {
		all = append(all, *r)
	} else {
		for i := range pod.Spec.InitContainers {
			all = append(all, pod.Spec.InitContainers[i].Resources)
		}
		for i := range pod.Spec.Containers {
			all = append(all, pod.Spec.Containers[i].Resources)
		}
	}
	any, guaranteed := false, true
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			any = any || !request.IsZero() || !limit.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && request.Equal(limit)
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// hasPodLevel reports whether the list has a resource that a pod as a whole may
// have.
func hasPodLevel(list corev1.ResourceList) bool {
	for name := range list {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			return true
		}
	}
	return false
}
