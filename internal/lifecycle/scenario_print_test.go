package lifecycle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// print says what was decided: one line for what was begun since, what is
// wanted, each container and the pod.
func (w *scenarioWorld) print() string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-8s%s\n", key, fmt.Sprintf(format, args...))
	}
	if len(w.did) > 0 {
		line("begun", "%s", strings.Join(w.did, ", "))
		w.did = nil
	}
	var work []string
	for _, a := range w.d.Work {
		s := a.Key().String()
		if a.Kind == StopContainer {
			s += " until " + w.rel(a.Until)
		}
		work = append(work, s)
	}
	if len(work) > 0 {
		line("work", "%s", strings.Join(work, ", "))
	}
	var probes []string
	for _, p := range w.d.Probes {
		s := p.Container + ":" + string(p.Key.Kind)
		if p.Last != Undecided {
			s += "=" + string(p.Last)
		}
		probes = append(probes, s)
	}
	if len(probes) > 0 {
		line("probes", "%s", strings.Join(probes, " "))
	}
	s := &w.d.Status
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			line(list[i].Name, "%s", containerLine(&list[i]))
		}
	}
	line("pod", "%s", w.podLine(s))
	if t := w.in.History.Termination; t != nil && !w.d.Stopped {
		line("ends", "grace %s, until %s", t.Grace, w.rel(t.Deadline))
	}
	if !w.d.LookAgain.IsZero() {
		line("wake", "%s", w.rel(w.d.LookAgain))
	}
	switch {
	case w.d.Finished:
		line("finished", "")
	case w.d.Stopped:
		line("stopped", "")
	}
	return trimLines(b.String())
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func (w *scenarioWorld) rel(t time.Time) string {
	d := t.Sub(w.in.Now)
	if d >= 0 {
		return "+" + d.String()
	}
	return d.String()
}

func containerLine(s *corev1.ContainerStatus) string {
	out := stateText(s.State)
	if s.Started != nil && *s.Started {
		out += " started"
	}
	if s.Ready {
		out += " ready"
	}
	if s.RestartCount > 0 {
		out += " restarts=" + strconv.Itoa(int(s.RestartCount))
	}
	if s.LastTerminationState.Terminated != nil {
		out += " last=" + stateText(s.LastTerminationState)
	}
	if s.State.Waiting != nil && s.State.Waiting.Message != "" {
		out += " | " + s.State.Waiting.Message
	}
	return out
}

func stateText(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "Running"
	case s.Terminated != nil:
		return fmt.Sprintf("%s(%d)", s.Terminated.Reason, s.Terminated.ExitCode)
	case s.Waiting != nil:
		return s.Waiting.Reason
	}
	return "none"
}

// podLine is the phase, then the conditions that are False (True for those of a
// stop), with their reasons.
func (w *scenarioWorld) podLine(s *corev1.PodStatus) string {
	out := string(s.Phase)
	if s.Reason != "" {
		out += " " + s.Reason
	}
	var not []string
	for _, c := range s.Conditions {
		text := string(c.Type)
		if c.Reason != "" {
			text += "(" + c.Reason + ")"
		}
		if c.Status == corev1.ConditionFalse && c.Type != corev1.AllContainersRestarting {
			not = append(not, text)
		} else if c.Status == corev1.ConditionTrue && c.Reason != "" {
			out += " is " + text
		}
	}
	if len(not) > 0 {
		out += ", not " + strings.Join(not, " ")
	}
	return out
}

// podFrom reads a pod in one line: init=NAMES containers=NAMES policy=P grace=D
// deadline=D gates=TYPES hostnetwork. A name may have options in parentheses:
//
//	always never onfailure     restart policy of its own
//	startup readiness liveness[=GRACE]     probes
//	prestop poststart          hooks
//	RULE:In:CODE+CODE          restart rule, RULE is Restart or RestartAllContainers
func podFrom(text string) (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1", Generation: 1}}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	grace := int64(30)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	for _, word := range splitOutside(text, ' ') {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "init", "containers":
			for _, c := range splitOutside(value, ',') {
				spec, err := containerFrom(c)
				if err != nil {
					return nil, err
				}
				if key == "init" {
					pod.Spec.InitContainers = append(pod.Spec.InitContainers, spec)
				} else {
					pod.Spec.Containers = append(pod.Spec.Containers, spec)
				}
			}
		case "policy":
			pod.Spec.RestartPolicy = corev1.RestartPolicy(value)
		case "grace", "deadline":
			d, err := time.ParseDuration(value)
			if err != nil {
				return nil, err
			}
			s := int64(d / time.Second)
			if key == "grace" {
				grace = s
			} else {
				pod.Spec.ActiveDeadlineSeconds = &s
			}
		case "gates":
			pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: corev1.PodConditionType(value)})
		case "hostnetwork":
			pod.Spec.HostNetwork = true
		default:
			return nil, fmt.Errorf("no pod option %q", word)
		}
	}
	return pod, nil
}

func containerFrom(text string) (corev1.Container, error) {
	name, options, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	c := corev1.Container{Name: name, Image: "image"}
	probe := func(grace string) *corev1.Probe {
		p := &corev1.Probe{PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1, TimeoutSeconds: 1}
		if d, err := time.ParseDuration(grace); err == nil {
			s := int64(d / time.Second)
			p.TerminationGracePeriodSeconds = &s
		}
		return p
	}
	policy := func(p corev1.ContainerRestartPolicy) { c.RestartPolicy = &p }
	hooks := func() *corev1.Lifecycle {
		if c.Lifecycle == nil {
			c.Lifecycle = &corev1.Lifecycle{}
		}
		return c.Lifecycle
	}
	hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"hook"}}}
	for _, o := range strings.Fields(options) {
		key, value, _ := strings.Cut(o, "=")
		switch {
		case key == "always":
			policy(corev1.ContainerRestartPolicyAlways)
		case key == "never":
			policy(corev1.ContainerRestartPolicyNever)
		case key == "onfailure":
			policy(corev1.ContainerRestartPolicyOnFailure)
		case key == "startup":
			c.StartupProbe = probe(value)
		case key == "readiness":
			c.ReadinessProbe = probe("")
		case key == "liveness":
			c.LivenessProbe = probe(value)
		case key == "prestop":
			hooks().PreStop = hook
		case key == "poststart":
			hooks().PostStart = hook
		case strings.Count(o, ":") == 2:
			part := strings.Split(o, ":")
			rule := corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleAction(part[0]),
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOperator(part[1])}}
			for _, code := range strings.Split(part[2], "+") {
				n, err := strconv.Atoi(code)
				if err != nil {
					return c, err
				}
				rule.ExitCodes.Values = append(rule.ExitCodes.Values, int32(n))
			}
			c.RestartPolicyRules = append(c.RestartPolicyRules, rule)
		default:
			return c, fmt.Errorf("no container option %q", o)
		}
	}
	return c, nil
}

// splitOutside splits at sep, but not within parentheses.
func splitOutside(text string, sep rune) []string {
	depth := 0
	return strings.FieldsFunc(text, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return r == sep && depth == 0
	})
}
