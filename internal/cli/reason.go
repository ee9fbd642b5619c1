package cli

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
)

// reasonOf says in a line why a pod is not ready, without what its state says
// already; empty for one that is as it should be.
func reasonOf(p *podState, word string) string {
	if p.gone || p.ready() && !p.stopping() || p.status != nil && p.status.Phase == corev1.PodSucceeded && p.status.Reason == "" {
		return ""
	}
	all := p.blocked(false)
	if p.over() {
		all = p.failures()
	}
	if len(all) == 0 {
		return ""
	}
	b := all[0]
	text := b.sentence()
	switch check := p.checks[b.container]; {
	case check != nil && b.text != "" && b.text == brief(check.Message):
		text = b.text // that it runs and is not ready the state says
	case b.word == word && b.detail != "":
		text = b.detail
	case b.word == word:
		text = ""
	}
	if b.container != "" && len(p.spec.InitContainers)+len(p.spec.Containers) > 1 {
		text = strings.TrimSuffix(b.container+": "+text, ": ")
	}
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// failures says what a pod that has ended badly failed by: what the node says of
// it, else its containers. How the sidecars ended that were stopped after them is no
// cause, unless it is all there is.
func (p *podState) failures() []blocker {
	if message := brief(p.status.Message); message != "" {
		return []blocker{{state: state{word: message}}}
	}
	var all, sidecars []blocker
	for _, c := range containersOf(p.status) {
		switch s := p.stateOf(&c); {
		case s.mood != bad:
		case p.sidecar(c.Name):
			sidecars = append(sidecars, blocker{c.Name, s})
		default:
			all = append(all, blocker{c.Name, s})
		}
	}
	if len(all) == 0 {
		return sidecars
	}
	return all
}

// hear takes past events for news: the newest warning, and of each container the
// newest check that failed since it started and what it was killed for last.
func (p *podState) hear(events []agent.PastEvent) {
	for i := range events {
		e := &events[i]
		p.kills.note(&e.Event, e.Last)
		if !warns(&e.Event) {
			continue
		}
		p.warning = &e.Event
		if e.Reason == "Unhealthy" && p.status != nil && !e.Last.Before(startOf(p.status, e.Container)) {
			p.checks[e.Container] = &e.Event
		}
	}
}

// startOf is when a container that runs was started, to the second.
func startOf(s *corev1.PodStatus, container string) time.Time {
	if c := statusOf(s, container); c != nil && c.State.Running != nil {
		return c.State.Running.StartedAt.Time
	}
	return time.Time{}
}

// described is what a description says of a pod, in the words of a run.
func described(d agent.Description) *podState {
	pod := d.Pod
	p := &podState{
		ref: agent.Ref{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, name: podName(pod.Namespace, pod.Name),
		spec: &pod.Spec, since: pod.CreationTimestamp.Time, asked: stopping(pod), checks: make(map[string]*agent.Event),
	}
	if pod.Status.Phase != "" {
		p.status = &pod.Status
	}
	p.hear(d.Events)
	return p
}
