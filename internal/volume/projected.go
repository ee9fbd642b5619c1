package volume

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
)

// addProjected adds all sources; of two files with one path the later counts.
func (p Payload) addProjected(pod *corev1.Pod, s *corev1.ProjectedVolumeSource, have objects, allocatable corev1.ResourceList) error {
	d := defaults{s.DefaultMode, s.DefaultUser}
	var errs problems
	for i := range s.Sources {
		source := &s.Sources[i]
		switch {
		case source.ConfigMap != nil:
			errs.add(p.addConfigMap(pod, source.ConfigMap, have, d))
		case source.Secret != nil:
			errs.add(p.addSecret(pod, source.Secret, have, d))
		case source.DownwardAPI != nil:
			errs.add(p.addDownwardAPI(pod, source.DownwardAPI.Items, allocatable, d))
		case source.ServiceAccountToken != nil:
			token := source.ServiceAccountToken
			f := d.file([]byte(have.tokens[token]), nil, token.User)
			if f.User != nil || fsGroup(pod) != nil {
				f.Mode = 0o600 // its owner's alone; the group is let in with fsGroup
			}
			p[path.Clean(token.Path)] = f
		case source.ClusterTrustBundle != nil:
			errs.add(fmt.Errorf("source clusterTrustBundle: berth has no trust bundles; mount the certificates from a configMap"))
		case source.PodCertificate != nil:
			errs.add(fmt.Errorf("source podCertificate: berth issues no pod certificates; mount them from a secret"))
		default:
			errs.add(fmt.Errorf("source %d is of no known kind; use configMap, secret, downwardAPI or serviceAccountToken", i))
		}
	}
	return errs.err()
}

func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
