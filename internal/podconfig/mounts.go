package podconfig

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

const hostsMountPath = "/etc/hosts"

// SubPaths returns the sub-path of each volume mount of the container that has
// one, by index in its volumeMounts, with subPathExpr expanded. Whoever resolves
// them on the host hands the result in as ContainerFacts.SubPaths.
func SubPaths(pod *corev1.Pod, c *corev1.Container, f ContainerFacts) (map[int]string, error) {
	env := buildEnv(pod, c, f)
	if len(env.problems) > 0 {
		return nil, configFailed(env.problems...)
	}
	all := map[int]string{}
	for i := range c.VolumeMounts {
		sub, err := subPath(&c.VolumeMounts[i], env)
		if err != nil {
			return nil, configFailed(err.Error())
		}
		if sub != "" {
			all[i] = sub
		}
	}
	return all, nil
}

// subPath is the sub-path of a mount; empty: the whole volume.
func subPath(m *corev1.VolumeMount, env *environment) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		// Unlike in commands, a variable that is not set is an error here: the
		// mount would be of another folder than was meant.
		unset := map[string]bool{}
		sub = expansion.Expand(m.SubPathExpr, func(name string) string {
			if env.values[name] == "" {
				unset[name] = true
			}
			return env.values[name]
		})
		if len(unset) > 0 {
			return "", fmt.Errorf("mount of volume %q: subPathExpr %q uses %s, which is not set; set it in env",
				m.Name, m.SubPathExpr, strings.Join(slices.Sorted(maps.Keys(unset)), ", "))
		}
	}
	if path.IsAbs(sub) {
		return "", fmt.Errorf("mount of volume %q: subPath %q is absolute; name it relative to the volume", m.Name, sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return "", fmt.Errorf("mount of volume %q: subPath %q leads out of the volume; leave out '..'", m.Name, sub)
	}
	return sub, nil
}

// buildMounts lists what is mounted into the container: its volumeMounts, then
// /etc/hosts and the termination log.
func buildMounts(pod *corev1.Pod, c *corev1.Container, f ContainerFacts, env *environment) ([]*runtimeapi.Mount, []string) {
	var all []*runtimeapi.Mount
	var problems []string
	ownHosts := false
	for i := range c.VolumeMounts {
		m, err := buildMount(&c.VolumeMounts[i], i, f, env)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		ownHosts = ownHosts || path.Clean(m.ContainerPath) == hostsMountPath
		all = append(all, m)
	}
	if f.HostsPath != "" && !ownHosts {
		all = append(all, &runtimeapi.Mount{ContainerPath: hostsMountPath, HostPath: f.HostsPath, SelinuxRelabel: f.SELinux})
	}
	if f.TerminationLogPath != "" && c.TerminationMessagePath != "" {
		all = append(all, &runtimeapi.Mount{
			ContainerPath:  absolute(c.TerminationMessagePath),
			HostPath:       f.TerminationLogPath,
			SelinuxRelabel: f.SELinux,
		})
	}
	if users := namespaces(pod, f.Facts).UsernsOptions; users != nil {
		for _, m := range all {
			m.UidMappings, m.GidMappings = users.Uids, users.Gids
		}
	}
	return all, problems
}

func buildMount(m *corev1.VolumeMount, index int, f ContainerFacts, env *environment) (*runtimeapi.Mount, error) {
	volume, ok := f.Volumes[m.Name]
	if !ok {
		return nil, fmt.Errorf("mount of volume %q: the pod has no such volume", m.Name)
	}
	sub, err := subPath(m, env)
	if err != nil {
		return nil, err
	}
	recursive, err := recursiveReadOnly(m, f.RecursiveReadOnly)
	if err != nil {
		return nil, err
	}
	propagation, err := propagation(m.MountPropagation)
	if err != nil {
		return nil, fmt.Errorf("mount of volume %q: %w", m.Name, err)
	}
	out := &runtimeapi.Mount{
		ContainerPath:     absolute(m.MountPath),
		Readonly:          m.ReadOnly || volume.ReadOnly,
		RecursiveReadOnly: recursive,
		Propagation:       propagation,
		SelinuxRelabel:    volume.Relabel && f.SELinux,
		MountOptions:      m.BindMountOptions,
	}
	switch {
	case volume.Image != "":
		out.Image = &runtimeapi.ImageSpec{Image: volume.Image}
		out.ImageSubPath = sub
	case sub != "":
		if out.HostPath, ok = f.SubPaths[index]; !ok {
			return nil, fmt.Errorf("mount of volume %q: sub-path %q was not resolved on the host", m.Name, sub)
		}
	default:
		out.HostPath = volume.HostPath
	}
	return out, nil
}

func propagation(mode *corev1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mode {
	case corev1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case corev1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case corev1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("mountPropagation %q is unknown; use None, HostToContainer or Bidirectional", *mode)
}

func recursiveReadOnly(m *corev1.VolumeMount, supported bool) (bool, error) {
	mode := m.RecursiveReadOnly
	if mode == nil || *mode == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	switch {
	case !m.ReadOnly:
		return false, fmt.Errorf("mount of volume %q: recursiveReadOnly needs readOnly: true", m.Name)
	case m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone:
		return false, fmt.Errorf("mount of volume %q: recursiveReadOnly and mountPropagation %s exclude each other", m.Name, *m.MountPropagation)
	case *mode == corev1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case *mode != corev1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("mount of volume %q: recursiveReadOnly %q is unknown; use Disabled, IfPossible or Enabled", m.Name, *mode)
	case !supported:
		return false, fmt.Errorf("mount of volume %q: the runtime cannot mount recursively read-only; use recursiveReadOnly: IfPossible", m.Name)
	}
	return true, nil
}

// absolute reads a path in the container as the runtime does: from the root.
func absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return "/" + p
}
