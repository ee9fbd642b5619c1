// Package probetiming reads the annotations that give a probe a period, a
// timeout or an initial delay below one second, which the Pod API can't express
// (kubernetes#76951):
//
//	metadata:
//	  annotations:
//	    probes.berth.run/app.readiness.period: 250ms
//	    probes.berth.run/app.readiness.timeout: 100ms
//	    probes.berth.run/app.startup.initial-delay: 50ms
//
// The name is <container>.<startup|readiness|liveness>.<period|timeout|initial-delay>.
// The container may also be a sidecar. The annotation wins over the field of the
// probe; a probe must be there. An annotation's name may have 63 characters, so
// the container's name may have 40 to 48.
//
// The package is pure and imports nothing but the API's types.
package probetiming

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Prefix is what the annotations start with.
const Prefix = "probes.berth.run/"

// Kind is which of a container's probes is meant.
type Kind string

// The kinds, as the annotations name them.
const (
	Startup   Kind = "startup"
	Readiness Kind = "readiness"
	Liveness  Kind = "liveness"
)

// The last part of an annotation's name.
const (
	period       = "period"
	timeout      = "timeout"
	initialDelay = "initial-delay"
)

// bounds of a value. The shortest period keeps a pod from spending more on its
// probes than on its work; the longest is far above anything useful.
var bounds = map[string]struct{ least, most time.Duration }{
	period:       {10 * time.Millisecond, 24 * time.Hour},
	timeout:      {time.Millisecond, time.Hour},
	initialDelay: {0, 24 * time.Hour},
}

// ProbeTiming gives the timing of a container's probe: the annotations' values,
// else those of the probe's fields, else Kubernetes' defaults (10 s, 1 s, 0).
// Annotations that Check would refuse count as absent. All are zero when the
// container has no such probe.
func ProbeTiming(pod *corev1.Pod, container string, kind Kind) (every, limit, delay time.Duration) {
	p := probeOf(pod, container, kind)
	if p == nil {
		return 0, 0, 0
	}
	every, limit = 10*time.Second, time.Second
	if p.PeriodSeconds > 0 {
		every = time.Duration(p.PeriodSeconds) * time.Second
	}
	if p.TimeoutSeconds > 0 {
		limit = time.Duration(p.TimeoutSeconds) * time.Second
	}
	delay = time.Duration(max(p.InitialDelaySeconds, 0)) * time.Second
	for what, value := range map[string]*time.Duration{period: &every, timeout: &limit, initialDelay: &delay} {
		text, ok := pod.Annotations[Prefix+container+"."+string(kind)+"."+what]
		if !ok {
			continue
		}
		if d, message := parse(what, text); message == "" {
			*value = d
		}
	}
	return every, limit, delay
}

// Problem is one annotation that can't be used.
type Problem struct {
	Key     string // of the annotation
	Message string // what is wrong
	Hint    string // what to do; may be empty
}

// Check finds the pod's annotations under Prefix that can't be used, sorted by
// key.
func Check(pod *corev1.Pod) []Problem {
	var problems []Problem
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if name, ok := strings.CutPrefix(key, Prefix); ok {
			if message, hint := check(pod, name, pod.Annotations[key]); message != "" {
				problems = append(problems, Problem{key, message, hint})
			}
		}
	}
	return problems
}

const form = "the form is " + Prefix + "<container>.<startup|readiness|liveness>.<period|timeout|initial-delay>"

func check(pod *corev1.Pod, name, value string) (message, hint string) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return "is not an annotation that berth knows", form
	}
	container, kind, what := parts[0], Kind(parts[1]), parts[2]
	if kind != Startup && kind != Readiness && kind != Liveness {
		return fmt.Sprintf("%q is not a kind of probe", kind), "use startup, readiness or liveness"
	}
	if _, ok := bounds[what]; !ok {
		return fmt.Sprintf("%q can't be set", what), "use period, timeout or initial-delay"
	}
	if find(pod, container) == nil {
		return fmt.Sprintf("there is no container %q", container), "the containers are " + names(pod)
	}
	if probeOf(pod, container, kind) == nil {
		return fmt.Sprintf("the container %q has no %sProbe", container, kind), "add the probe, or remove the annotation"
	}
	if _, message := parse(what, value); message != "" {
		b := bounds[what]
		return message, fmt.Sprintf("write a duration from %s to %s, for example 250ms", short(b.least), short(b.most))
	}
	return "", ""
}

func parse(what, text string) (d time.Duration, message string) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Sprintf("%.40q is not a duration", text)
	}
	if b := bounds[what]; d < b.least || d > b.most {
		return 0, fmt.Sprintf("%s is out of range", text)
	}
	return d, ""
}

// short writes a duration without its empty parts: 24h, not 24h0m0s.
func short(d time.Duration) string {
	if d > 0 && d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return d.String()
}

func find(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func names(pod *corev1.Pod) string {
	var all []string
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			all = append(all, list[i].Name)
		}
	}
	return strings.Join(all, ", ")
}

func probeOf(pod *corev1.Pod, container string, kind Kind) *corev1.Probe {
	c := find(pod, container)
	if c == nil {
		return nil
	}
	switch kind {
	case Startup:
		return c.StartupProbe
	case Readiness:
		return c.ReadinessProbe
	case Liveness:
		return c.LivenessProbe
	}
	return nil
}
