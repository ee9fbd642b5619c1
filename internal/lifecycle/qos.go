package lifecycle

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOSClass is the pod's quality of service class, by the API's rules: Guaranteed
// when each container has equal requests and limits for cpu and memory,
// BestEffort when none has any, else Burstable. Pod-level resources, where
// given, count alone. Upstream's helper reads global feature gates.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass {
	var all []corev1.ResourceRequirements
	if r := pod.Spec.Resources; r != nil && (len(r.Requests) > 0 || len(r.Limits) > 0) {
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
			req, lim := positive(r.Requests, name), positive(r.Limits, name)
			any = any || req != nil || lim != nil
			// A request that is not given is the limit, as the API defaults it;
			// one of zero is not.
			asked, given := r.Requests[name]
			guaranteed = guaranteed && lim != nil && (!given || asked.Cmp(*lim) == 0)
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

func positive(l corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
	if q, ok := l[name]; ok && q.Sign() > 0 {
		return &q
	}
	return nil
}
