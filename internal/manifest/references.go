package manifest

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// MissingReferences warns of ConfigMaps and Secrets that the pods of the set
// need and that are not in it. They may still appear; until then the pod waits.
func (s *Set) MissingReferences() Problems {
	have := map[string]bool{}
	for _, m := range s.ConfigMaps {
		have[kindConfigMap+" "+m.Namespace+"/"+m.Name] = true
	}
	for _, m := range s.Secrets {
		have[kindSecret+" "+m.Namespace+"/"+m.Name] = true
	}
	var problems Problems
	for _, pod := range s.Pods {
		origin := s.origins[pod]
		wanted := references(pod)
		for _, path := range slices.Sorted(maps.Keys(wanted)) {
			r := wanted[path]
			if r.name == "" || have[r.kind+" "+pod.Namespace+"/"+r.name] {
				continue
			}
			problems = append(problems, Problem{
				File: origin.File, Line: locate(origin.root, path), Field: joined(origin.Path, path),
				Severity: Warning, Rule: RuleAdvice,
				Message: fmt.Sprintf("the %s %s/%s is not in these manifests", r.kind, pod.Namespace, r.name),
				Hint:    "the pod waits until it is there; add it, or write optional: true",
			})
		}
	}
	return problems
}

type reference struct{ kind, name string }

// references gives what a pod can't start without, by path.
func references(pod *corev1.Pod) map[string]reference {
	refs := map[string]reference{}
	add := func(path, kind, name string, optional *bool) {
		if optional == nil || !*optional {
			refs[path] = reference{kind, name}
		}
	}
	for i, v := range pod.Spec.Volumes {
		at := fmt.Sprintf("spec.volumes[%d]", i)
		if v.ConfigMap != nil {
			add(at+".configMap.name", kindConfigMap, v.ConfigMap.Name, v.ConfigMap.Optional)
		}
		if v.Secret != nil {
			add(at+".secret.secretName", kindSecret, v.Secret.SecretName, v.Secret.Optional)
		}
		if v.Projected == nil {
			continue
		}
		for j, s := range v.Projected.Sources {
			at := fmt.Sprintf("%s.projected.sources[%d]", at, j)
			if s.ConfigMap != nil {
				add(at+".configMap.name", kindConfigMap, s.ConfigMap.Name, s.ConfigMap.Optional)
			}
			if s.Secret != nil {
				add(at+".secret.name", kindSecret, s.Secret.Name, s.Secret.Optional)
			}
		}
	}
	for list, containers := range map[string][]corev1.Container{"initContainers": pod.Spec.InitContainers, "containers": pod.Spec.Containers} {
		for i, c := range containers {
			at := fmt.Sprintf("spec.%s[%d]", list, i)
			for j, e := range c.Env {
				at := fmt.Sprintf("%s.env[%d].valueFrom", at, j)
				if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
					add(at+".configMapKeyRef.name", kindConfigMap, e.ValueFrom.ConfigMapKeyRef.Name, e.ValueFrom.ConfigMapKeyRef.Optional)
				}
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					add(at+".secretKeyRef.name", kindSecret, e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Optional)
				}
			}
			for j, e := range c.EnvFrom {
				at := fmt.Sprintf("%s.envFrom[%d]", at, j)
				if e.ConfigMapRef != nil {
					add(at+".configMapRef.name", kindConfigMap, e.ConfigMapRef.Name, e.ConfigMapRef.Optional)
				}
				if e.SecretRef != nil {
					add(at+".secretRef.name", kindSecret, e.SecretRef.Name, e.SecretRef.Optional)
				}
			}
		}
	}
	return refs
}
