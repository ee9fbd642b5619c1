package cgroup

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

const (
	minShares    = 2      // the kernel's, for a cpu request of nothing
	maxShares    = 262144 // the kernel's
	sharesPerCPU = 1024
	periodMicros = 100_000 // 100 ms, over which a cpu quota counts
	minQuota     = 1000    // µs; the kernel's
)

// Resources limits a cgroup. Zero means no limit.
type Resources struct {
	CPUShares      uint64 // weight against siblings, 1024 for one CPU; at least 2
	CPUQuotaMicros int64  // µs of CPU time in each 100 ms
	MemoryBytes    int64
	Pids           int64           // processes and threads
	HugePages      map[int64]int64 // page size to limit, both in bytes; sizes not named have no limit
}

// PodResources computes the resources of a pod's cgroup as the kubelet does: the
// cpu request sets the shares; a limit of cpu or memory holds for the pod if each
// container has one or the pod itself has; init containers, sidecars, overhead
// and pod-level resources count by the API's rules. Pids is left to the caller,
// who also says of which class the pod is.
func PodResources(pod *corev1.Pod, qos corev1.PodQOSClass) Resources {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})

	r := Resources{CPUShares: minShares, HugePages: map[int64]int64{}}
	for name, q := range requests {
		if size, ok := hugePageSize(name); ok {
			r.HugePages[size] += q.Value()
		}
	}
	if qos == corev1.PodQOSBestEffort {
		return r
	}
	r.CPUShares = shares(requests.Cpu().MilliValue())
	if limited(pod, corev1.ResourceCPU) {
		r.CPUQuotaMicros = quota(limits.Cpu().MilliValue())
	}
	if limited(pod, corev1.ResourceMemory) {
		r.MemoryBytes = limits.Memory().Value()
	}
	return r
}

// limited reports whether the pod as a whole has a limit.
func limited(pod *corev1.Pod, name corev1.ResourceName) bool {
	has := func(l corev1.ResourceList) bool { q := l[name]; return !q.IsZero() }
	if resourcehelper.IsPodLevelResourcesSet(pod) && has(pod.Spec.Resources.Limits) {
		return true
	}
	for _, c := range allContainers(pod) {
		if !has(c.Resources.Limits) {
			return false
		}
	}
	return true
}

func allContainers(pod *corev1.Pod) []corev1.Container {
	return append(append([]corev1.Container(nil), pod.Spec.InitContainers...), pod.Spec.Containers...)
}

func shares(milliCPU int64) uint64 {
	return uint64(min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares))
}

func quota(milliCPU int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*periodMicros/1000, minQuota)
}

// hugePageSize gives the bytes of a page for a name like "hugepages-2Mi".
func hugePageSize(name corev1.ResourceName) (bytes int64, ok bool) {
	size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !ok {
		return 0, false
	}
	q, err := resource.ParseQuantity(size)
	if err != nil || q.Value() <= 0 {
		return 0, false // validation does not let it through
	}
	return q.Value(), true
}
