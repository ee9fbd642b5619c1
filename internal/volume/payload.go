package volume

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// File is one file of a volume whose content comes from the API.
type File struct {
	Data []byte
	Mode uint32 // Unix permission bits
	User *int64 // owner; nil: root
}

// Payload is all files of such a volume, by path relative to its root.
type Payload map[string]File

// objects are the fetched things that payloads are made of. What is not in a
// map does not exist.
type objects struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	// tokens are by their projection.
	tokens map[*corev1.ServiceAccountTokenProjection]string
}

// payload works out the files of the volume.
func payload(pod *corev1.Pod, source *corev1.VolumeSource, have objects, allocatable corev1.ResourceList) (Payload, error) {
	p := Payload{}
	var err error
	switch {
	case source.ConfigMap != nil:
		err = p.addConfigMap(pod, configMapProjection(source.ConfigMap), have, defaults{source.ConfigMap.DefaultMode, source.ConfigMap.DefaultUser})
	case source.Secret != nil:
		err = p.addSecret(pod, secretProjection(source.Secret), have, defaults{source.Secret.DefaultMode, source.Secret.DefaultUser})
	case source.DownwardAPI != nil:
		err = p.addDownwardAPI(pod, source.DownwardAPI.Items, allocatable, defaults{source.DownwardAPI.DefaultMode, source.DownwardAPI.DefaultUser})
	case source.Projected != nil:
		err = p.addProjected(pod, source.Projected, have, allocatable)
	}
	if err != nil {
		return nil, err
	}
	for name := range p {
		if err := checkFilePath(name); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// defaults are a volume's defaultMode and defaultUser.
type defaults struct {
	mode *int32
	user *int64
}

// defaultFileMode is the API's own default of defaultMode.
const defaultFileMode = 0o644

func (d defaults) file(data []byte, mode *int32, user *int64) File {
	f := File{Data: data, Mode: defaultFileMode, User: d.user}
	if mode == nil {
		mode = d.mode
	}
	if mode != nil {
		f.Mode = uint32(*mode) & 0o777
	}
	if user != nil {
		f.User = user
	}
	return f
}

// addKeys adds the keys of an object: the items, or all if there are none.
func (p Payload) addKeys(object string, data map[string][]byte, items []corev1.KeyToPath, optional bool, d defaults) error {
	if len(items) == 0 {
		for key, value := range data {
			p[key] = d.file(value, nil, nil)
		}
		return nil
	}
	var errs problems
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if !optional {
				errs.add(fmt.Errorf("key %q not found in %s; add it, or mark the source optional", item.Key, object))
			}
			continue
		}
		p[path.Clean(item.Path)] = d.file(value, item.Mode, item.User)
	}
	return errs.err()
}

// checkFilePath refuses paths that would leave the volume, or clash with the
// files that atomic updates need. Validation has refused them before.
func checkFilePath(name string) error {
	problem := ""
	switch parts := strings.Split(name, "/"); {
	case name == "" || name == ".":
		problem = "is empty"
	case path.IsAbs(name):
		problem = "is absolute"
	case strings.HasPrefix(name, ".."):
		problem = "begins with '..'"
	default:
		for _, part := range parts {
			if part == ".." || strings.ContainsRune(part, 0) || len(part) > 255 {
				problem = "has a part that no file can be named"
			}
		}
	}
	if problem != "" {
		return fmt.Errorf("file path %q %s; name it relative to the volume", name, problem)
	}
	return nil
}

func isTrue(b *bool) bool { return b != nil && *b }
