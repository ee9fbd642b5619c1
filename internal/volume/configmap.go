package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// configMapProjection is a configMap volume as the projected volume's source,
// which is the same without defaults of its own.
func configMapProjection(s *corev1.ConfigMapVolumeSource) *corev1.ConfigMapProjection {
	return &corev1.ConfigMapProjection{LocalObjectReference: s.LocalObjectReference, Items: s.Items, Optional: s.Optional}
}

func (p Payload) addConfigMap(pod *corev1.Pod, s *corev1.ConfigMapProjection, have objects, d defaults) error {
	cm, ok := have.configMaps[s.Name]
	if !ok {
		if isTrue(s.Optional) {
			return nil
		}
		return fmt.Errorf("configmap %q not found in namespace %s; run its manifest together with the pod's, or mark the source optional", s.Name, pod.Namespace)
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for key, value := range cm.BinaryData {
		data[key] = value
	}
	for key, value := range cm.Data {
		data[key] = []byte(value)
	}
	return p.addKeys(fmt.Sprintf("configmap %s/%s", pod.Namespace, s.Name), data, s.Items, isTrue(s.Optional), d)
}
