package podruntime

import corev1 "k8s.io/api/core/v1"

// Recorder takes events as `kubectl describe` shows them. It must not block.
type Recorder interface {
	// Record records something that happened to the object. The type is
	// corev1.EventTypeNormal or corev1.EventTypeWarning.
	Record(ref corev1.ObjectReference, eventType, reason, message string)
}

// PodRef names the pod as the object of an event; with a container's name, that
// part of it.
func PodRef(pod *corev1.Pod, container string) corev1.ObjectReference {
	ref := corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "Pod",
		Namespace:       pod.Namespace,
		Name:            pod.Name,
		UID:             pod.UID,
		ResourceVersion: pod.ResourceVersion,
	}
	if path := containerPath(&pod.Spec, container); path != "" {
		ref.FieldPath = path + "{" + container + "}"
	}
	return ref
}

func containerPath(spec *corev1.PodSpec, name string) string {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return "spec.containers"
		}
	}
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == name {
			return "spec.initContainers"
		}
	}
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == name {
			return "spec.ephemeralContainers"
		}
	}
	return ""
}
