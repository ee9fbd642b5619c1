package cli

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
)

// exitCodeOf is what berth run returns when all its pods are over: 0 if all
// succeeded; the code of the failed container, if there was only one pod and it
// has one; else 1.
func exitCodeOf(pods []*podState) int {
	failed := false
	for _, p := range pods {
		failed = failed || p.status == nil || p.status.Phase != corev1.PodSucceeded
	}
	if !failed {
		return 0
	}
	if len(pods) == 1 && pods[0].status != nil {
		for _, c := range containersOf(pods[0].status) {
			// A sidecar that is stopped after the work is done is no failure, but
			// in a failed pod the main containers come after it here as well.
			if t := c.State.Terminated; t != nil && t.ExitCode > 0 && t.ExitCode < 256 && known(t) && !pods[0].sidecar(c.Name) {
				return int(t.ExitCode)
			}
		}
	}
	return exitFailed
}

// known says whether the exit code is that of the process, and not one that
// stands for "nobody knows".
func known(t *corev1.ContainerStateTerminated) bool {
	return t.Reason != "ContainerStatusUnknown" && t.Reason != "Unknown"
}

// blockers says, a line each, what keeps a pod from being ready, or from being
// done.
func blockers(p *podState, done bool) []string {
	var lines []string
	all := p.blocked(done)
	for i, b := range all {
		who := p.name
		if b.container != "" {
			who += "/" + b.container
		}
		text := b.sentence()
		if slices.ContainsFunc(all[:i], func(before blocker) bool { return before.text == b.text }) {
			text = b.short()
		}
		lines = append(lines, who+": "+text)
	}
	if w := p.lastWarning(all); w != nil {
		of := ""
		if w.Container != "" {
			of = " of " + w.Container
		}
		lines = append(lines, fmt.Sprintf("  last warning%s: %s: %s", of, w.Reason, brief(w.Message)))
	}
	return lines
}

// causes are the blockers in the words of those who know which pod it is.
func (p *podState) causes(done bool) []string {
	lines := blockers(p, done)
	for i, l := range lines {
		l = strings.TrimPrefix(strings.TrimSpace(l), p.name)
		lines[i] = strings.TrimLeft(l, "/: ")
	}
	return lines
}

// lastWarning is the newest warning of a pod, unless it says what the blockers
// say, in other words around it or not.
func (p *podState) lastWarning(said []blocker) *agent.Event {
	if p.warning == nil || p.stopping() || p.status == nil || p.over() {
		return nil
	}
	cause := brief(p.warning.Message)
	for _, b := range said {
		if strings.Contains(b.sentence(), cause) || b.text != "" && strings.Contains(cause, b.text) {
			return nil
		}
	}
	return p.warning
}

// blocker is what keeps a pod from being ready or done.
type blocker struct {
	container string // empty: it is about the pod
	state
}

// blocked says what keeps a pod from being ready, or from being done: at least
// one thing.
func (p *podState) blocked(done bool) []blocker {
	if p.stopping() {
		s := state{word: "is being stopped"}
		if p.status != nil {
			s.detail = brief(p.status.Message)
		}
		return []blocker{{state: s}}
	}
	if p.status == nil {
		return []blocker{{state: state{word: "nothing is known of it yet"}}}
	}
	if p.over() {
		return []blocker{{state: p.ending()}}
	}
	var all []blocker
	for _, c := range containersOf(p.status) {
		s := p.stateOf(&c)
		ended := c.State.Terminated != nil && (done || c.State.Terminated.ExitCode == 0)
		if c.Ready && !done || ended || s.waitsForOthers || done && c.Ready && p.sidecar(c.Name) {
			continue
		}
		if done && c.State.Running != nil {
			s = p.unfinished(&c)
		} else if check := p.checks[c.Name]; check != nil && c.State.Running != nil {
			s.text = brief(check.Message)
			s.detail += ": " + s.text
		}
		all = append(all, blocker{c.Name, s})
	}
	if len(all) == 0 {
		all = append(all, blocker{state: state{word: conditionsMissing(p.status)}})
	}
	return all
}

// unfinished is the state of a container that runs and is to end: with what it
// suffers from, which may be why it does not.
func (p *podState) unfinished(c *corev1.ContainerStatus) state {
	s := state{word: "running"}
	check, last := p.checks[c.Name], c.LastTerminationState.Terminated
	switch {
	case check != nil && !c.Ready:
		s.text = brief(check.Message)
		s.detail = s.text
	case last != nil:
		was := p.endOf(c.Name, last)
		s.word, s.detail, s.text = "running again", "before that "+was.sentence(), was.text
	}
	return s
}

// conditionsMissing names the conditions that are not true.
func conditionsMissing(s *corev1.PodStatus) string {
	var missing []string
	for _, c := range s.Conditions {
		if c.Status != corev1.ConditionTrue && c.Type != corev1.DisruptionTarget {
			text := string(c.Type)
			if c.Message != "" {
				text += " (" + brief(c.Message) + ")"
			}
			missing = append(missing, text)
		}
	}
	if len(missing) == 0 {
		return "is " + string(s.Phase)
	}
	return "is not " + strings.Join(missing, ", not ")
}

// ending says how a pod ended, and by which containers it failed where the node gives
// no reason.
func (p *podState) ending() state {
	s := state{word: podEnd(p)}
	if p.gone || p.status.Phase != corev1.PodFailed || p.status.Reason != "" || p.status.Message != "" {
		return s
	}
	var all []string
	for _, b := range p.failures() {
		if text := b.sentence(); len(p.spec.InitContainers)+len(p.spec.Containers) > 1 {
			all = append(all, b.container+": "+text)
		} else {
			all = append(all, text)
		}
	}
	s.detail = strings.Join(all, "; ")
	return s
}

// podEnd says how a pod ended.
func podEnd(p *podState) string {
	if p.status == nil || !isTerminal(p.status) {
		return "was removed"
	}
	text := strings.ToLower(string(p.status.Phase))
	for _, more := range []string{p.status.Reason, brief(p.status.Message)} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}
