package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// MissingReferences warns of ConfigMaps and Secrets that the pods of the set need and
// that are not in it, and of keys that those in it do not have. They may still appear;
// until then the pod waits.
func (s *Set) MissingReferences() Problems {
	have := map[string]map[string]bool{} // keys, by kind, namespace and name
	for _, m := range s.ConfigMaps {
		keys := map[string]bool{}
		for key := range m.Data {
			keys[key] = true
		}
		for key := range m.BinaryData {
			keys[key] = true
		}
		have[kindConfigMap+" "+m.Namespace+"/"+m.Name] = keys
	}
	for _, m := range s.Secrets {
		keys := map[string]bool{}
		for key := range m.Data {
			keys[key] = true
		}
		have[kindSecret+" "+m.Namespace+"/"+m.Name] = keys
	}
	var problems Problems
	for _, pod := range s.Pods {
		origin := s.origins[pod]
		warn := func(path, message, hint string) {
			problems = append(problems, Problem{
				File: origin.File, Line: locate(origin.root, path), Field: joined(origin.Path, path),
				Severity: Warning, Rule: RuleAdvice, Message: message, Hint: hint,
			})
		}
		wanted := references(pod)
		for _, path := range slices.Sorted(maps.Keys(wanted)) {
			r := wanted[path]
			if r.name == "" {
				continue
			}
			what := fmt.Sprintf("the %s %s/%s", r.kind, pod.Namespace, r.name)
			keys, ok := have[r.kind+" "+pod.Namespace+"/"+r.name]
			if !ok {
				warn(path, what+" is not in these manifests", "the pod waits until it is there; add it, or write optional: true")
				continue
			}
			for _, at := range slices.Sorted(maps.Keys(r.keys)) {
				if key := r.keys[at]; key != "" && !keys[key] {
					warn(at, fmt.Sprintf("%s in these manifests has no key %s", what, quoted(key)), keysHint(keys))
				}
			}
		}
	}
	return problems
}

// keysHint says which keys there are.
func keysHint(keys map[string]bool) string {
	const most = 8
	names := slices.Sorted(maps.Keys(keys))
	if len(names) == 0 {
		return "the pod waits until it has; it has none"
	}
	if len(names) > most {
		names = append(names[:most], "…")
	}
	return "the pod waits until it has; it has " + strings.Join(names, ", ")
}

type reference struct {
	kind, name string
	keys       map[string]string // by path
}

// references gives what a pod can't start without, by path.
func references(pod *corev1.Pod) map[string]reference {
	refs := map[string]reference{}
	add := func(path, kind, name string, optional *bool, keys map[string]string) {
		if optional == nil || !*optional {
			refs[path] = reference{kind, name, keys}
		}
	}
	items := func(path string, list []corev1.KeyToPath) map[string]string {
		keys := map[string]string{}
		for i, k := range list {
			keys[fmt.Sprintf("%s.items[%d].key", path, i)] = k.Key
		}
		return keys
	}
	for i, v := range pod.Spec.Volumes {
		at := fmt.Sprintf("spec.volumes[%d]", i)
		if v.ConfigMap != nil {
			add(at+".configMap.name", kindConfigMap, v.ConfigMap.Name, v.ConfigMap.Optional, items(at+".configMap", v.ConfigMap.Items))
		}
		if v.Secret != nil {
			add(at+".secret.secretName", kindSecret, v.Secret.SecretName, v.Secret.Optional, items(at+".secret", v.Secret.Items))
		}
		if v.Projected == nil {
			continue
		}
		for j, s := range v.Projected.Sources {
			at := fmt.Sprintf("%s.projected.sources[%d]", at, j)
			if s.ConfigMap != nil {
				add(at+".configMap.name", kindConfigMap, s.ConfigMap.Name, s.ConfigMap.Optional, items(at+".configMap", s.ConfigMap.Items))
			}
			if s.Secret != nil {
				add(at+".secret.name", kindSecret, s.Secret.Name, s.Secret.Optional, items(at+".secret", s.Secret.Items))
			}
		}
	}
	for list, containers := range map[string][]corev1.Container{"initContainers": pod.Spec.InitContainers, "containers": pod.Spec.Containers} {
		for i, c := range containers {
			at := fmt.Sprintf("spec.%s[%d]", list, i)
			for j, e := range c.Env {
				at := fmt.Sprintf("%s.env[%d].valueFrom", at, j)
				if e.ValueFrom == nil {
					continue
				}
				if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
					add(at+".configMapKeyRef.name", kindConfigMap, r.Name, r.Optional, map[string]string{at + ".configMapKeyRef.key": r.Key})
				}
				if r := e.ValueFrom.SecretKeyRef; r != nil {
					add(at+".secretKeyRef.name", kindSecret, r.Name, r.Optional, map[string]string{at + ".secretKeyRef.key": r.Key})
				}
			}
			for j, e := range c.EnvFrom {
				at := fmt.Sprintf("%s.envFrom[%d]", at, j)
				if e.ConfigMapRef != nil {
					add(at+".configMapRef.name", kindConfigMap, e.ConfigMapRef.Name, e.ConfigMapRef.Optional, nil)
				}
				if e.SecretRef != nil {
					add(at+".secretRef.name", kindSecret, e.SecretRef.Name, e.SecretRef.Optional, nil)
				}
			}
		}
	}
	return refs
}
