package podconfig

import (
	"encoding/json"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// Labels of sandboxes and containers. They are the kubelet's, so that tools
// that know it (crictl, cAdvisor) know our pods too.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// Annotations of containers, the kubelet's too. AnnotationHash holds
// lifecycle.ContainerHash of the spec the container was made from.
const (
	AnnotationHash              = "io.kubernetes.container.hash"
	AnnotationRestartCount      = "io.kubernetes.container.restartCount"
	AnnotationTerminationPath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationPolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStop           = "io.kubernetes.container.preStopHandler"
	AnnotationPorts             = "io.kubernetes.container.ports"
	AnnotationDeletionGrace     = "io.kubernetes.pod.deletionGracePeriod"    // seconds
	AnnotationTerminationGrace  = "io.kubernetes.pod.terminationGracePeriod" // seconds
)

func sandboxLabels(pod *corev1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	labels[LabelPodName] = pod.Name
	labels[LabelPodNamespace] = pod.Namespace
	labels[LabelPodUID] = string(pod.UID)
	return labels
}

func containerLabels(pod *corev1.Pod, c *corev1.Container) map[string]string {
	return map[string]string{
		LabelPodName:       pod.Name,
		LabelPodNamespace:  pod.Namespace,
		LabelPodUID:        string(pod.UID),
		LabelContainerName: c.Name,
	}
}

func containerAnnotations(pod *corev1.Pod, c *corev1.Container, attempt int) (map[string]string, error) {
	a := map[string]string{
		AnnotationHash:              lifecycle.ContainerHash(c),
		AnnotationRestartCount:      strconv.Itoa(attempt),
		AnnotationTerminationPath:   c.TerminationMessagePath,
		AnnotationTerminationPolicy: string(c.TerminationMessagePolicy),
	}
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		a[AnnotationDeletionGrace] = strconv.FormatInt(*s, 10)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		a[AnnotationTerminationGrace] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		raw, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, err
		}
		a[AnnotationPreStop] = string(raw)
	}
	if len(c.Ports) > 0 {
		raw, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, err
		}
		a[AnnotationPorts] = string(raw)
	}
	return a, nil
}
