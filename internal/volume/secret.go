package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// secretProjection is a secret volume as the projected volume's source, which
// is the same without defaults of its own.
func secretProjection(s *corev1.SecretVolumeSource) *corev1.SecretProjection {
	return &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: s.SecretName},
		Items:                s.Items,
		Optional:             s.Optional,
	}
}

// addSecret adds the keys of a secret. Secrets are only ever written to memory.
func (p Payload) addSecret(pod *corev1.Pod, s *corev1.SecretProjection, have objects, d defaults) error {
	secret, ok := have.secrets[s.Name]
	if !ok {
		if isTrue(s.Optional) {
			return nil
		}
		return fmt.Errorf("secret %q not found in namespace %s; run its manifest together with the pod's, or mark the source optional", s.Name, pod.Namespace)
	}
	return p.addKeys(fmt.Sprintf("secret %s/%s", pod.Namespace, s.Name), secret.Data, s.Items, isTrue(s.Optional), d)
}
