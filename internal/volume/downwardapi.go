package volume

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/fieldpath"

	"github.com/berth-run/berth/internal/podconfig"
)

// addDownwardAPI adds fields of the pod's own and resources of its containers.
func (p Payload) addDownwardAPI(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, allocatable corev1.ResourceList, d defaults) error {
	var errs problems
	for i := range items {
		item := &items[i]
		value, err := "", error(nil)
		switch {
		case item.FieldRef != nil:
			value, err = fieldpath.ExtractFieldPathAsString(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = podconfig.ResourceField(pod, nil, item.ResourceFieldRef, allocatable)
		default:
			err = fmt.Errorf("names no source; give it fieldRef or resourceFieldRef")
		}
		if err != nil {
			errs.add(fmt.Errorf("downwardAPI item %q: %w", item.Path, err))
			continue
		}
		p[path.Clean(item.Path)] = d.file([]byte(value), item.Mode, item.User)
	}
	return errs.err()
}
