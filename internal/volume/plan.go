package volume

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Kind is the kind of a volume, in the API's word.
type Kind string

// The kinds there are.
const (
	EmptyDir    Kind = "emptyDir"
	HostPath    Kind = "hostPath"
	ConfigMap   Kind = "configMap"
	Secret      Kind = "secret"
	DownwardAPI Kind = "downwardAPI"
	Projected   Kind = "projected"
	Image       Kind = "image"
)

// Backing is what holds a volume's files.
type Backing int

// The backings. Elsewhere is not below the pod's folder.
const (
	Elsewhere Backing = iota
	Disk
	Memory
	HugePages
)

// Step is one volume to be on the host.
type Step struct {
	Name    string
	Kind    Kind
	Backing Backing
	// SizeBytes bounds a volume in memory; 0: the kernel's default, half of
	// the machine. PageBytes is the page size of huge pages.
	SizeBytes int64
	PageBytes int64
	// Mode is of the volume's root folder, in Unix bits.
	Mode uint32
	// Group owns the volume's files; nil: the group of root.
	Group *int64
	// Nested are folders, relative to the volume, that must exist because other
	// volumes are mounted on them.
	Nested []string
	Source corev1.VolumeSource
}

// Found is a volume as it was found on the disk.
type Found struct {
	Kind Kind
	Name string
}

// Steps is what makes a pod's volumes be as they should.
type Steps struct {
	// Remove comes first: what earlier tries or other specs left.
	Remove  []Found
	Prepare []Step
}

// Plan says what to do for the pod's volumes, given what is on the disk for it
// and what the node has for pods. It fails, naming all problems, if some volume
// can't be had here.
func Plan(pod *corev1.Pod, found []Found, allocatable corev1.ResourceList) (Steps, error) {
	var steps Steps
	var errs problems
	for i := range pod.Spec.Volumes {
		step, err := plan(pod, &pod.Spec.Volumes[i], allocatable)
		if err != nil {
			errs.add(fmt.Errorf("cannot prepare volume %q: %w", pod.Spec.Volumes[i].Name, err))
			continue
		}
		steps.Prepare = append(steps.Prepare, step)
	}
	for _, f := range found {
		if !slices.ContainsFunc(steps.Prepare, func(s Step) bool {
			return s.Name == f.Name && s.Kind == f.Kind && s.Backing != Elsewhere
		}) {
			steps.Remove = append(steps.Remove, f)
		}
	}
	return steps, errs.err()
}

func plan(pod *corev1.Pod, v *corev1.Volume, allocatable corev1.ResourceList) (Step, error) {
	if !plainName(v.Name) {
		return Step{}, errors.New("its name is no plain name of a folder; use lower case letters, digits and '-'")
	}
	step := Step{Name: v.Name, Mode: 0o777, Source: v.VolumeSource}
	switch {
	case v.HostPath != nil:
		step.Kind = HostPath
		return step, nil
	case v.Image != nil:
		step.Kind = Image
		return step, nil
	case v.ConfigMap != nil:
		step.Kind, step.Backing = ConfigMap, Disk
	case v.Secret != nil:
		step.Kind, step.Backing = Secret, Memory
	case v.DownwardAPI != nil:
		step.Kind, step.Backing = DownwardAPI, Memory
	case v.Projected != nil:
		step.Kind, step.Backing = Projected, Memory
	case v.EmptyDir != nil, reflect.ValueOf(v.VolumeSource).IsZero(): // no source: emptyDir
		if err := planEmptyDir(pod, v.EmptyDir, &step); err != nil {
			return Step{}, err
		}
	default:
		return Step{}, fmt.Errorf("berth has no %s volumes; use emptyDir, hostPath, configMap, secret, downwardAPI, projected or image", sourceName(v.VolumeSource))
	}
	if step.Backing == Memory {
		step.SizeBytes = memorySize(pod, v.EmptyDir, allocatable)
	}
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		// New files get the group of their folder. fsGroupChangePolicy means
		// nothing for these kinds: they are always made anew, for the group.
		step.Group = sc.FSGroup
		step.Mode |= 0o2770
	}
	if step.Kind != EmptyDir {
		step.Nested = nested(pod, v.Name)
	}
	return step, nil
}

// plainName says whether the name can be a folder's, beside those that this
// package makes for itself. Validation lets no other name through.
func plainName(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.ContainsAny(name, "/\x00")
}

// sourceName is the API's name of the source that is set.
func sourceName(s corev1.VolumeSource) string {
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "unknown"
}

// nested lists folders that must exist in the named volume, which containers
// can't write to, so that other volumes can be mounted on them: a volume at
// /etc/app and another one at /etc/app/tls need "tls" in the first.
func nested(pod *corev1.Pod, name string) []string {
	var all []string
	look := func(mounts []corev1.VolumeMount) {
		var inner []string
		for _, outer := range mounts {
			// A mounted sub-path is another folder than the volume's root.
			if outer.Name != name || outer.SubPath != "" || outer.SubPathExpr != "" {
				continue
			}
			prefix := strings.TrimSuffix(path.Clean(outer.MountPath), "/") + "/"
			for _, m := range mounts {
				if rel, ok := strings.CutPrefix(path.Clean(m.MountPath), prefix); ok && rel != "" {
					inner = append(inner, rel)
				}
			}
		}
		slices.Sort(inner)
		// Of a/b and a/b/c, the first is enough: the second is in a volume
		// mounted on it.
		var kept []string
		for _, rel := range inner {
			if !slices.ContainsFunc(kept, func(k string) bool { return rel == k || strings.HasPrefix(rel, k+"/") }) {
				kept = append(kept, rel)
			}
		}
		all = append(all, kept...)
	}
	for i := range pod.Spec.InitContainers {
		look(pod.Spec.InitContainers[i].VolumeMounts)
	}
	for i := range pod.Spec.Containers {
		look(pod.Spec.Containers[i].VolumeMounts)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
