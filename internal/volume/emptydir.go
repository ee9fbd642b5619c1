package volume

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/cgroup"
	"github.com/berth-run/berth/internal/lifecycle"
)

// planEmptyDir fills in what an emptyDir comes to; source may be nil.
func planEmptyDir(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource, step *Step) error {
	step.Kind = EmptyDir
	if source == nil {
		step.Backing = Disk
		return nil
	}
	switch {
	case source.Medium == corev1.StorageMediumDefault:
		step.Backing = Disk
	case source.Medium == corev1.StorageMediumMemory:
		step.Backing = Memory
		step.Mode = 0o1777 // as a file system in memory is
	case source.Medium == corev1.StorageMediumHugePages,
		strings.HasPrefix(string(source.Medium), string(corev1.StorageMediumHugePagesPrefix)):
		size, err := hugePageBytes(pod, source.Medium)
		if err != nil {
			return err
		}
		step.Backing, step.PageBytes = HugePages, size
	default:
		return fmt.Errorf("emptyDir.medium %q is unknown; use Memory, HugePages, HugePages-2Mi (any page size), or leave it out for disk", source.Medium)
	}
	if source.Mode != nil {
		step.Mode = uint32(*source.Mode) & 0o1777
	}
	return nil
}

// memorySize is the bound of a volume in memory, in bytes: the least of its
// sizeLimit, of the pod's memory limit, and of what the node has; 0: none of
// them is known.
func memorySize(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource, allocatable corev1.ResourceList) int64 {
	size := allocatable.Memory().Value()
	atMost := func(bytes int64) {
		if bytes > 0 && (size == 0 || bytes < size) {
			size = bytes
		}
	}
	atMost(cgroup.PodResources(pod, lifecycle.QOSClass(pod)).MemoryBytes)
	if source != nil && source.SizeLimit != nil {
		atMost(source.SizeLimit.Value())
	}
	return size
}

// hugePageBytes is the page size of a medium. Plain HugePages takes the size
// that the pod's containers request, of which there must be one.
func hugePageBytes(pod *corev1.Pod, medium corev1.StorageMedium) (int64, error) {
	requested := map[int64]bool{}
	read := func(list corev1.ResourceList) {
		for name := range list {
			if text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
				if q, err := resource.ParseQuantity(text); err == nil {
					requested[q.Value()] = true
				}
			}
		}
	}
	if pod.Spec.Resources != nil {
		read(pod.Spec.Resources.Requests)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			read(containers[i].Resources.Requests)
		}
	}
	if text, ok := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix)); ok {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return 0, fmt.Errorf("emptyDir.medium %q names no page size: %w", medium, err)
		}
		if !requested[q.Value()] {
			return 0, fmt.Errorf("emptyDir.medium is %s and no container requests hugepages-%s; request them", medium, text)
		}
		return q.Value(), nil
	}
	if len(requested) != 1 {
		return 0, fmt.Errorf("emptyDir.medium is HugePages and the containers request %d page sizes; request one, or name it as in HugePages-2Mi", len(requested))
	}
	for size := range requested {
		return size, nil
	}
	return 0, nil
}
