package podconfig

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kernel's bounds for CPU shares and quotas. Times are in microseconds.
const (
	minShares        = 2
	maxShares        = 262144
	quotaPeriodMicro = 100000
	minQuotaMicro    = 1000
)

// linuxResources are the cgroup settings of one container, and its OOM score.
func linuxResources(pod *corev1.Pod, c *corev1.Container, f Facts) *runtimeapi.LinuxContainerResources {
	cpuLimit, memoryLimit := c.Resources.Limits.Cpu(), c.Resources.Limits.Memory()
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		// What a container does not limit, the pod does (KEP-2837).
		if cpuLimit.IsZero() {
			cpuLimit = pod.Spec.Resources.Limits.Cpu()
		}
		if memoryLimit.IsZero() {
			memoryLimit = pod.Spec.Resources.Limits.Memory()
		}
	}
	cpuRequest := cpuLimit
	if _, ok := c.Resources.Requests[corev1.ResourceCPU]; ok {
		cpuRequest = c.Resources.Requests.Cpu()
	}
	r := cpuAndMemory(cpuRequest, cpuLimit, memoryLimit)
	r.OomScoreAdj = oomScoreAdj(pod, c, f.MemoryBytes)
	r.HugepageLimits = hugePages(pod, c, f.HugePageSizes)
	if f.CgroupV2 {
		r.Unified = unified(f)
	} else if f.SwapAccounting {
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes // no swap on top of memory
	}
	return r
}

// cpuAndMemory translates cores and bytes to what the kernel takes.
func cpuAndMemory(cpuRequest, cpuLimit, memoryLimit *resource.Quantity) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{
		CpuShares:          shares(cpuRequest.MilliValue()),
		CpuPeriod:          quotaPeriodMicro,
		CpuQuota:           quota(cpuLimit.MilliValue()),
		MemoryLimitInBytes: memoryLimit.Value(),
	}
}

// shares are the CPU weight of so many thousandths of a core.
func shares(milliCPU int64) int64 {
	return min(max(milliCPU*1024/1000, minShares), maxShares)
}

// quota is the CPU time in a period, in microseconds; 0: not limited.
func quota(milliCPU int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*quotaPeriodMicro/1000, minQuotaMicro)
}

// unified are settings that exist on cgroup v2 only. The kubelet would also slow
// containers down near their limit (memory.high), but only with a factor that it
// has no default for.
func unified(f Facts) map[string]string {
	u := map[string]string{
		"memory.oom.group": "1", // one process out of memory ends the container
		"memory.min":       "0",
		"memory.low":       "0",
	}
	if f.SwapAccounting {
		u["memory.swap.max"] = "0"
	}
	return u
}

// sandboxResources are the sum of what the pod's containers ask for, and the
// overhead of its sandbox.
func sandboxResources(pod *corev1.Pod, f Facts) (sum, overhead *runtimeapi.LinuxContainerResources) {
	opts := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	requests, limits := resourcehelper.PodRequests(pod, opts), resourcehelper.PodLimits(pod, opts)
	cpuRequest := limits.Cpu()
	if _, ok := requests[corev1.ResourceCPU]; ok {
		cpuRequest = requests.Cpu()
	}
	sum = cpuAndMemory(cpuRequest, limits.Cpu(), limits.Memory())
	overhead = &runtimeapi.LinuxContainerResources{}
	if o := pod.Spec.Overhead; o != nil {
		overhead = cpuAndMemory(o.Cpu(), o.Cpu(), o.Memory())
	}
	if f.CgroupV2 {
		sum.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return sum, overhead
}

// hugePages limits each page size the machine has; a size that nobody asks for
// is limited to nothing.
func hugePages(pod *corev1.Pod, c *corev1.Container, sizes []string) []*runtimeapi.HugepageLimit {
	wanted := map[string]uint64{}
	read := func(limits corev1.ResourceList) {
		for name, amount := range limits {
			if size, ok := hugePageSize(name); ok {
				wanted[size] = uint64(amount.Value())
			}
		}
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		read(pod.Spec.Resources.Limits)
	}
	read(c.Resources.Limits)
	var all []*runtimeapi.HugepageLimit
	for _, size := range sizes {
		all = append(all, &runtimeapi.HugepageLimit{PageSize: size, Limit: wanted[size]})
	}
	return all
}

// hugePageSize names the page size of resource hugepages-2Mi as cgroups do: 2MB.
func hugePageSize(name corev1.ResourceName) (size string, ok bool) {
	text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !ok {
		return "", false
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() <= 0 {
		return "", false
	}
	n, unit := q.Value(), 0
	units := []string{"B", "KB", "MB", "GB", "TB"}
	for n >= 1024 && n%1024 == 0 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	return strconv.FormatInt(n, 10) + units[unit], true
}
