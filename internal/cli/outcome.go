package cli

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	if p.stopping() {
		text := p.name + ": is being stopped"
		if p.status != nil && p.status.Message != "" {
			text += ": " + brief(p.status.Message)
		}
		return []string{text}
	}
	if p.status == nil {
		return []string{p.name + ": nothing is known of it yet"}
	}
	if p.over() {
		return []string{fmt.Sprintf("%s: %s", p.name, podEnd(p))}
	}
	var lines []string
	for _, c := range containersOf(p.status) {
		s := p.stateOf(&c)
		ended := c.State.Terminated != nil && (done || c.State.Terminated.ExitCode == 0)
		if c.Ready && !done || ended || s.waitsForOthers || done && c.Ready && p.sidecar(c.Name) {
			continue
		}
		line := fmt.Sprintf("%s/%s: %s", p.name, c.Name, s.sentence())
		if done && c.State.Running != nil {
			line = fmt.Sprintf("%s/%s: running", p.name, c.Name)
		} else if check := p.checks[c.Name]; check != nil && c.State.Running != nil {
			line += ": " + brief(check.Message)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = append(lines, p.name+": "+conditionsMissing(p.status))
	}
	if w := p.warning; w != nil && !strings.Contains(strings.Join(lines, "\n"), brief(w.Message)) {
		of := ""
		if w.Container != "" {
			of = " of " + w.Container
		}
		lines = append(lines, fmt.Sprintf("  last warning%s: %s: %s", of, w.Reason, brief(w.Message)))
	}
	return lines
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
