package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/format"
)

// containers says of each container how it is and how it was.
func containers(w *page, d agent.Description, p *podState) {
	for _, group := range []struct {
		title string
		specs []corev1.Container
		are   []corev1.ContainerStatus
	}{
		{"Init containers", d.Pod.Spec.InitContainers, d.Pod.Status.InitContainerStatuses},
		{"Containers", d.Pod.Spec.Containers, d.Pod.Status.ContainerStatuses},
	} {
		if len(group.specs) == 0 {
			continue
		}
		w.WriteString("\n" + group.title + ":\n")
		for i := range group.specs {
			spec := &group.specs[i]
			var is *corev1.ContainerStatus
			if n := slices.IndexFunc(group.are, func(s corev1.ContainerStatus) bool { return s.Name == spec.Name }); n >= 0 {
				is = &group.are[n]
			}
			container(w, p, spec, is, d.Probes)
		}
	}
}

func container(w *page, p *podState, spec *corev1.Container, is *corev1.ContainerStatus, probes []agent.ProbeRecord) {
	title := spec.Name
	if p.sidecar(spec.Name) {
		title += " (sidecar)"
	}
	w.WriteString("  " + title + ":\n")
	say := func(name, text string) { w.say(4, innerCells, name, text) }
	if is == nil {
		say("State", "nothing is known of it yet")
	} else {
		say("State", w.state(p, is))
		if t := is.LastTerminationState.Terminated; t != nil {
			say("Last state", w.end(p, is.Name, t))
		}
		say("Ready", map[bool]string{true: "yes", false: "no"}[is.Ready])
		say("Restarts", strconv.Itoa(int(is.RestartCount)))
	}
	say("Image", spec.Image)
	if is != nil {
		say("Image ID", is.ImageID)
		say("Container ID", is.ContainerID)
	}
	say("Command", quoted(spec.Command))
	say("Args", quoted(spec.Args))
	say("Ports", ports(spec.Ports))
	say("Limits", amounts(spec.Resources.Limits))
	say("Requests", amounts(spec.Resources.Requests))
	var lines []string
	for _, of := range []struct {
		kind string
		spec *corev1.Probe
	}{{"startup", spec.StartupProbe}, {"readiness", spec.ReadinessProbe}, {"liveness", spec.LivenessProbe}} {
		if of.spec != nil {
			lines = append(lines, w.probe(of.kind, of.spec, newestRecord(probes, spec.Name, of.kind), is))
		}
	}
	say("Probes", strings.Join(lines, "\n"))
}

// state is how a container is, and since when.
func (w *page) state(p *podState, is *corev1.ContainerStatus) string {
	switch {
	case is.State.Terminated != nil:
		return w.end(p, is.Name, is.State.Terminated)
	case is.State.Running != nil:
		return p.stateOf(is).sentence() + "\nsince " + w.at(is.State.Running.StartedAt.Time)
	case is.State.Waiting != nil && !p.stateOf(is).waitsForOthers && is.State.Waiting.Message != "":
		// Here is room for all of it.
		return is.State.Waiting.Reason + ": " + strings.TrimSpace(is.State.Waiting.Message)
	}
	return p.stateOf(is).sentence()
}

// end is how a container ended, what it was killed for, and all that it said.
func (w *page) end(p *podState, name string, t *corev1.ContainerStateTerminated) string {
	text := ended(t).short()
	if t.Reason != "" && !strings.Contains(strings.ToLower(text), strings.ToLower(t.Reason)) {
		text = t.Reason + ", " + text
	}
	if !t.FinishedAt.IsZero() {
		text += ", " + w.at(t.FinishedAt.Time)
		if !t.StartedAt.IsZero() {
			text += " after " + format.Duration(max(t.FinishedAt.Sub(t.StartedAt.Time), 0))
		}
	}
	if p.kills.caused(name, t) {
		text += "\n" + p.kills.state("killed", name).sentence()
	}
	if t.Message != "" {
		text += "\n" + strings.TrimSpace(t.Message)
	}
	return text
}

// newestRecord is what is known of a probe of the newest container of that name.
func newestRecord(all []agent.ProbeRecord, container, kind string) *agent.ProbeRecord {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Container == container && all[i].Kind == kind {
			return &all[i]
		}
	}
	return nil
}

// probe says what a probe does and what came of it last.
func (w *page) probe(kind string, spec *corev1.Probe, r *agent.ProbeRecord, is *corev1.ContainerStatus) string {
	text := kind + ": " + probeAction(spec)
	if r == nil || len(r.Checks) == 0 {
		return text + ", " + unchecked(is)
	}
	text += ", every " + format.Duration(r.Period.Duration)
	last := r.Checks[len(r.Checks)-1]
	same := 0
	for i := len(r.Checks) - 1; i >= 0 && r.Checks[i].OK == last.OK; i-- {
		same++
	}
	how := "succeeded"
	if !last.OK {
		how = "failed"
	}
	if !r.Live {
		how += " last" // it is over, or the container is
	}
	text += fmt.Sprintf("\n  %s %s ago", how, w.ago(last.Time.Time))
	switch {
	case same == len(r.Checks) && same > 1:
		text += fmt.Sprintf(" (%d or more in a row)", same)
	case same > 1:
		text += fmt.Sprintf(" (%d in a row)", same)
	}
	if last.Output != "" {
		text += ": " + brief(last.Output)
	}
	return text
}

// unchecked says why no check of a probe is known. An agent that takes over knows
// none of those that the one before has made.
func unchecked(is *corev1.ContainerStatus) string {
	switch {
	case is == nil || is.State.Running == nil && is.State.Terminated == nil && is.LastTerminationState.Terminated == nil:
		return "not checked yet"
	case is.State.Running == nil:
		return "not checked any more; those that failed are among the events"
	}
	return "no check is known yet"
}

// probeAction is what a probe does.
func probeAction(p *corev1.Probe) string {
	switch {
	case p.Exec != nil:
		return "exec " + quoted(p.Exec.Command)
	case p.HTTPGet != nil:
		g := p.HTTPGet
		scheme := "http"
		if g.Scheme != "" {
			scheme = strings.ToLower(string(g.Scheme))
		}
		return fmt.Sprintf("GET %s://%s:%s/%s", scheme, g.Host, g.Port.String(), strings.TrimPrefix(g.Path, "/"))
	case p.TCPSocket != nil:
		return fmt.Sprintf("tcp %s:%s", p.TCPSocket.Host, p.TCPSocket.Port.String())
	case p.GRPC != nil:
		text := fmt.Sprintf("grpc :%d", p.GRPC.Port)
		if p.GRPC.Service != nil && *p.GRPC.Service != "" {
			text += " " + *p.GRPC.Service
		}
		return text
	}
	return "nothing"
}

// quoted shows a command so that its words can be told apart.
func quoted(words []string) string {
	var all []string
	for _, word := range words {
		if word == "" || strings.ContainsAny(word, " \t\n\"'\\$") {
			word = strconv.Quote(word)
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

func ports(all []corev1.ContainerPort) string {
	var texts []string
	for _, p := range all {
		text := fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol)
		if p.Name != "" {
			text = p.Name + " " + text
		}
		if p.HostPort != 0 {
			text += fmt.Sprintf(" (on the machine: %d)", p.HostPort)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func amounts(list corev1.ResourceList) string {
	var all []string
	for name, q := range list {
		all = append(all, string(name)+" "+format.Quantity(string(name), q))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
