package manifest

import (
	"maps"
	"slices"
	"strings"
)

// The kinds that berth runs.
const (
	kindPod       = "Pod"
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
	kindList      = "List"
)

// lists are the kinds that hold others; the value is the kind of items that
// don't say theirs.
var lists = map[string]string{
	kindList: "", "PodList": kindPod, "ConfigMapList": kindConfigMap, "SecretList": kindSecret,
}

// advice says what to do with the kinds that people have, and berth has not.
var advice = map[string]string{
	"CronJob":               "take its pod template, spec.jobTemplate.spec.template, and make it a Pod",
	"DaemonSet":             templateAdvice("DaemonSet"),
	"Deployment":            templateAdvice("Deployment"),
	"Job":                   templateAdvice("Job"),
	"PodTemplate":           "take its template and make it a Pod",
	"ReplicaSet":            templateAdvice("ReplicaSet"),
	"ReplicationController": templateAdvice("ReplicationController"),
	"StatefulSet":           templateAdvice("StatefulSet"),

	"Endpoints":               "there are no Services; use ports[].hostPort",
	"Ingress":                 "there are no Services; use ports[].hostPort",
	"Service":                 "there are no Services; use ports[].hostPort, and the pod's address",
	"NetworkPolicy":           "there is no network policy; remove it",
	"Namespace":               "remove it: a pod may name any namespace",
	"PersistentVolume":        "use a hostPath volume in the pod",
	"PersistentVolumeClaim":   "use a hostPath volume in the pod",
	"StorageClass":            "use a hostPath volume in the pod",
	"Role":                    "there is no access control; remove it",
	"RoleBinding":             "there is no access control; remove it",
	"ClusterRole":             "there is no access control; remove it",
	"ClusterRoleBinding":      "there is no access control; remove it",
	"ServiceAccount":          "there are no service accounts; remove it",
	"HorizontalPodAutoscaler": "nothing scales pods here; remove it",
	"PodDisruptionBudget":     "nothing drains this node; remove it",
	"Kustomization":           "run kustomize build first",
}

func templateAdvice(kind string) string {
	return "take the pod template of the " + kind + ", spec.template, and make it a Pod"
}

// kindOf decides what a document is from its apiVersion and kind. It gives ""
// after reporting why it can't be run.
func kindOf(n *node, prefix, implied string, report reporter) string {
	at := func(name string) string {
		if prefix == "" {
			return name
		}
		return prefix + "." + name
	}
	for _, name := range []string{"kind", "apiVersion"} {
		if f := n.field(name); f != nil && f.value.fault != nil {
			report(Problem{Line: f.line, Field: at(name), Rule: f.value.fault.rule, Message: f.value.fault.message, Hint: f.value.fault.hint})
			return ""
		} else if f != nil && f.value.kind != stringNode && f.value.kind != nullNode {
			report(Problem{Line: f.line, Field: at(name), Rule: RuleKind, Message: "is " + f.value.noun() + ", want a string", Hint: "for example " + map[string]string{"kind": "Pod", "apiVersion": "v1"}[name]})
			return ""
		}
	}
	kind, version := n.textOf("kind"), n.textOf("apiVersion")
	if kind == "" && implied != "" {
		kind = implied
		if version == "" {
			version = "v1"
		}
	}
	if kind == "" {
		report(Problem{Line: n.line, Field: at("kind"), Rule: RuleKind, Message: "is missing", Hint: kindHint(n)})
		return ""
	}
	_, isList := lists[kind]
	ours := isList || kind == kindPod || kind == kindConfigMap || kind == kindSecret
	line := n.line
	if f := n.field("kind"); f != nil {
		line = f.line
	}
	if !ours {
		report(Problem{Line: line, Field: at("kind"), Rule: RuleKind,
			Message: "berth runs Pod, ConfigMap and Secret, not " + foreignName(kind, version), Hint: foreignHint(kind)})
		return ""
	}
	if version == "v1" {
		return kind
	}
	p := Problem{Line: line, Field: at("apiVersion"), Rule: RuleKind, Message: "is missing", Hint: `write apiVersion: v1`}
	if version != "" {
		p.Line = n.field("apiVersion").line
		p.Message = "is " + quoted(version) + `, want "v1"`
		p.Hint = "a " + kind + " is in v1"
	}
	report(p)
	return kind
}

func foreignName(kind, version string) string {
	if group, _, ok := strings.Cut(version, "/"); ok && advice[kind] == "" {
		return printable(kind + " of " + group)
	}
	return printable(kind)
}

func foreignHint(kind string) string {
	if hint := advice[kind]; hint != "" {
		return hint
	}
	known := append([]string{kindPod, kindConfigMap, kindSecret, kindList}, slices.Sorted(maps.Keys(advice))...)
	near, _ := nearest(kind, known)
	switch {
	case near == "":
		return "remove it"
	case advice[near] != "":
		return "did you mean " + near + "? Then " + advice[near]
	}
	return "did you mean " + near + "?"
}

// kindHint guesses what a document without a kind is.
func kindHint(n *node) string {
	has := func(keys ...string) bool {
		return !slices.ContainsFunc(keys, func(k string) bool { return n.field(k) == nil })
	}
	switch {
	case has("services"):
		return "this looks like a Compose file; convert it first, for example with kompose convert"
	case has("name", "version", "apiVersion"), has("appVersion"):
		return "this looks like a Helm chart; give the output of helm template"
	case has("resources") && !has("metadata"):
		return "this looks like a kustomization; give the output of kustomize build"
	case has("containers"):
		return "this looks like the inside of spec; start with apiVersion: v1, kind: Pod, metadata and spec"
	case has("spec"):
		return "write kind: Pod"
	}
	return "write kind: Pod, ConfigMap or Secret"
}
