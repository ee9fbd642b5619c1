package podconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// environment is the variables of a container, in the order they were first
// set, and the problems met on the way.
type environment struct {
	order    []string
	values   map[string]string
	problems []string
}

func (e *environment) set(name, value string) {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		e.problem("environment variable %q: the name is empty or holds '=' or NUL; rename it", name)
		return
	}
	if strings.ContainsRune(value, 0) {
		e.problem("environment variable %s: its value holds a NUL byte, which no environment can carry; mount it as a volume", name)
		return
	}
	if _, ok := e.values[name]; !ok {
		e.order = append(e.order, name)
	}
	e.values[name] = value
}

func (e *environment) problem(format string, args ...any) {
	e.problems = append(e.problems, fmt.Sprintf(format, args...))
}

// expand replaces each $(NAME) of a variable that is set. $$ is a dollar, and
// $(NAME) of a variable that is not set stays as it is.
func (e *environment) expand(text string) string {
	return expansion.Expand(text, expansion.MappingFuncFor(e.values))
}

func (e *environment) expandAll(texts []string) []string {
	var out []string
	for _, t := range texts {
		out = append(out, e.expand(t))
	}
	return out
}

func (e *environment) keyValues() []*runtimeapi.KeyValue {
	var all []*runtimeapi.KeyValue
	for _, name := range e.order {
		all = append(all, &runtimeapi.KeyValue{Key: name, Value: []byte(e.values[name])})
	}
	return all
}

// buildEnv works out the container's environment: envFrom first, in its order,
// then env, each of which may use what was set before it.
func buildEnv(pod *corev1.Pod, c *corev1.Container, f ContainerFacts) *environment {
	e := &environment{values: map[string]string{}}
	for i := range c.EnvFrom {
		e.addFrom(pod, &c.EnvFrom[i], f)
	}
	for i := range c.Env {
		v := &c.Env[i]
		switch {
		case v.Value != "":
			e.set(v.Name, e.expand(v.Value))
		case v.ValueFrom != nil:
			value, ok, err := valueFrom(pod, c, v.ValueFrom, f)
			switch {
			case err != nil:
				e.problem("environment variable %s: %v", v.Name, err)
			case ok:
				e.set(v.Name, value)
			}
		default:
			e.set(v.Name, "")
		}
	}
	return e
}

func (e *environment) addFrom(pod *corev1.Pod, from *corev1.EnvFromSource, f ContainerFacts) {
	switch {
	case from.ConfigMapRef != nil:
		ref := from.ConfigMapRef
		cm, ok := f.ConfigMaps[ref.Name]
		if !ok {
			if !isTrue(ref.Optional) {
				e.problem("envFrom: %v", missing("configmap", pod.Namespace, ref.Name))
			}
			return
		}
		for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
			e.set(from.Prefix+key, cm.Data[key])
		}
	case from.SecretRef != nil:
		ref := from.SecretRef
		secret, ok := f.Secrets[ref.Name]
		if !ok {
			if !isTrue(ref.Optional) {
				e.problem("envFrom: %v", missing("secret", pod.Namespace, ref.Name))
			}
			return
		}
		for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
			e.set(from.Prefix+key, string(secret.Data[key]))
		}
	}
}

// valueFrom finds the value of one variable; ok is false if it is optional and
// does not exist.
func valueFrom(pod *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource, f ContainerFacts) (value string, ok bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = field(pod, from.FieldRef, f)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = ResourceField(pod, c, from.ResourceFieldRef, f.Allocatable)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, found := f.ConfigMaps[ref.Name]
		if !found {
			return optional(ref.Optional, missing("configmap", pod.Namespace, ref.Name))
		}
		if value, found = cm.Data[ref.Key]; !found {
			return optional(ref.Optional, missingKey("configmap", pod.Namespace, ref.Name, ref.Key))
		}
		return value, true, nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret, found := f.Secrets[ref.Name]
		if !found {
			return optional(ref.Optional, missing("secret", pod.Namespace, ref.Name))
		}
		raw, found := secret.Data[ref.Key]
		if !found {
			return optional(ref.Optional, missingKey("secret", pod.Namespace, ref.Name, ref.Key))
		}
		return string(raw), true, nil
	case from.FileKeyRef != nil:
		ref := from.FileKeyRef
		content, found := f.EnvFiles[EnvFile{Volume: ref.VolumeName, Path: ref.Path}]
		if !found {
			return optional(ref.Optional, fmt.Errorf("file %q not found in volume %q; let an init container write it, or mark the reference optional", ref.Path, ref.VolumeName))
		}
		value, err = envFileValue(content, ref.Key)
		if err != nil {
			return "", false, fmt.Errorf("file %q in volume %q: %w", ref.Path, ref.VolumeName, err)
		}
		if value == "" {
			return optional(ref.Optional, fmt.Errorf("key %q not found in file %q of volume %q; add it, or mark the reference optional", ref.Key, ref.Path, ref.VolumeName))
		}
		return value, true, nil
	}
	return "", false, fmt.Errorf("valueFrom names no source; give it one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef")
}

func optional(isOptional *bool, err error) (string, bool, error) {
	if isTrue(isOptional) {
		return "", false, nil
	}
	return "", false, err
}

func missing(kind, namespace, name string) error {
	return fmt.Errorf("%s %q not found in namespace %s; run its manifest together with the pod's, or mark the reference optional", kind, name, namespace)
}

func missingKey(kind, namespace, name, key string) error {
	return fmt.Errorf("key %q not found in %s %s/%s; add it, or mark the reference optional", key, kind, namespace, name)
}
