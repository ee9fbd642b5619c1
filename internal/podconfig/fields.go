package podconfig

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	resourceutil "k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
)

// field is the value of a fieldRef. Fields of the status come from the facts:
// the pod's own status may be older than its sandbox.
func field(pod *corev1.Pod, ref *corev1.ObjectFieldSelector, f ContainerFacts) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("fieldRef has apiVersion %q; use v1", ref.APIVersion)
	}
	switch ref.FieldPath {
	case "spec.nodeName", "spec.host":
		return cmp.Or(f.NodeName, pod.Spec.NodeName), nil
	case "spec.serviceAccountName":
		return cmp.Or(pod.Spec.ServiceAccountName, "default"), nil // as admission fills it in
	case "status.podIP":
		return first(f.PodIPs), nil
	case "status.podIPs":
		return strings.Join(f.PodIPs, ","), nil
	case "status.hostIP", "status.hostIPs":
		if len(f.HostIPs) == 0 {
			return "", fmt.Errorf("fieldRef %s: the node has no address; give it one, or leave the field out", ref.FieldPath)
		}
		if ref.FieldPath == "status.hostIP" {
			return f.HostIPs[0], nil
		}
		return strings.Join(f.HostIPs, ","), nil
	}
	return fieldpath.ExtractFieldPathAsString(pod, ref.FieldPath)
}

// ResourceField is the value of a resourceFieldRef. A limit that is not set is
// what the container could use: the pod's limit, or all the node has. The
// container is the one that ref names, else c, which may be nil in volumes.
func ResourceField(pod *corev1.Pod, c *corev1.Container, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	if ref.ContainerName != "" && (c == nil || ref.ContainerName != c.Name) {
		if c = findContainer(pod, ref.ContainerName); c == nil {
			return "", fmt.Errorf("resourceFieldRef names container %q, which the pod does not have", ref.ContainerName)
		}
	}
	if c == nil {
		return "", fmt.Errorf("resourceFieldRef names no container; set containerName")
	}
	available := allocatable.DeepCopy()
	if resourcehelper.IsPodLevelLimitsSet(pod) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if limit, ok := pod.Spec.Resources.Limits[name]; ok && !limit.IsZero() && available != nil {
				available[name] = limit
			}
		}
	}
	limited := c.DeepCopy()
	resourceutil.MergeContainerResourceLimits(limited, available)
	return resourceutil.ExtractContainerResourceValue(ref, limited)
}

func findContainer(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
