package lifecycle

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// conditions are the pod's conditions that the node owns. Their words are the
// kubelet's (source: pkg/kubelet/status/generate.go, 1.37), because people and
// tools match on them; test/upstream compares.
func (v *view) conditions(s, old *corev1.PodStatus) {
	ready := v.containersReady(s)
	conds := []corev1.PodCondition{
		v.readyToStart(),
		v.initializedCondition(s, old),
		v.podReady(ready),
		ready,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	if c, ok := v.restartingCondition(s.Phase); ok {
		conds = append(conds, c)
	}
	if t := v.h.Termination; t != nil {
		conds = append(conds, t.Conditions...)
	} else if e := v.d.Begin.End; e != nil {
		conds = append(conds, e.Conditions...)
	}
	for i := range conds {
		c := &conds[i]
		c.ObservedGeneration = v.pod.Generation
		c.LastTransitionTime = *stamp(v.in.Now)
		if old == nil {
			continue
		}
		for _, o := range old.Conditions {
			if o.Type == c.Type && o.Status == c.Status {
				c.LastTransitionTime = o.LastTransitionTime
			}
		}
	}
	s.Conditions = conds
}

func (v *view) readyToStart() corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}
	if !v.sandboxOK {
		c.Status, c.Reason = corev1.ConditionFalse, ReasonPodSandboxNotReady
		if f, ok := v.h.Failures[CreateSandbox]; ok {
			c.Message = f.Message
		} else if f, ok := v.h.Failures[PrepareVolumes]; ok {
			c.Message = f.Message
		}
	}
	return c
}

func (v *view) initializedCondition(s, old *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if s.Phase == corev1.PodSucceeded {
		c.Reason = ReasonPodCompleted
		return c
	}
	for i := range s.ContainerStatuses {
		if st := s.ContainerStatuses[i].State; st.Running != nil || st.Terminated != nil {
			return c
		}
	}
	var incomplete []string
	for i, m := range v.init {
		st := &s.InitContainerStatuses[i]
		if done := st.Ready; m.kind == plainInit && !done || m.kind == sidecar && !*st.Started {
			incomplete = append(incomplete, st.Name)
		}
	}
	if len(incomplete) == 0 || conditionTrue(old, corev1.PodInitialized) {
		return c
	}
	c.Status, c.Reason = corev1.ConditionFalse, ReasonContainersNotInitialized
	c.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	return c
}

func (v *view) containersReady(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch s.Phase {
	case corev1.PodSucceeded:
		c.Reason = ReasonPodCompleted
		return c
	case corev1.PodFailed:
		c.Reason = ReasonPodFailed
		return c
	}
	var unready []string
	for i, m := range v.init {
		if m.kind == sidecar && !s.InitContainerStatuses[i].Ready {
			unready = append(unready, m.spec.Name)
		}
	}
	for i, m := range v.main {
		if !s.ContainerStatuses[i].Ready {
			unready = append(unready, m.spec.Name)
		}
	}
	if len(unready) > 0 {
		c.Reason = ReasonContainersNotReady
		c.Message = fmt.Sprintf("containers with unready status: %s", unready)
		return c
	}
	c.Status = corev1.ConditionTrue
	return c
}

// podReady is ContainersReady and all readiness gates.
func (v *view) podReady(containers corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var missing []string
	for _, g := range v.pod.Spec.ReadinessGates {
		got := findCondition(v.in.Facts.Gates, g.ConditionType)
		switch {
		case got == nil:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case got.Status != corev1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", g.ConditionType, got.Status))
		}
	}
	if len(missing) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, ReasonReadinessGatesNotReady, strings.Join(missing, ", ")
	}
	return c
}

// restartingCondition is reported by pods that have a rule to restart all
// containers (KEP-5532).
func (v *view) restartingCondition(phase corev1.PodPhase) (corev1.PodCondition, bool) {
	has, restarting := hasRestartAllRule(v.pod), v.d.Begin.RestartAll
	for m := range v.members() {
		restarting = restarting || m.kind != ephemeralContainer && m.h.Attempts > 0 && m.h.Round < v.h.RestartAll && m.alive()
	}
	c := corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse}
	switch {
	case phase == corev1.PodSucceeded:
		c.Reason = ReasonPodCompleted
	case phase == corev1.PodFailed:
		c.Reason = ReasonPodFailed
	case restarting:
		c.Status, c.Reason = corev1.ConditionTrue, "RestartAllContainersStarted"
		c.Message = "container exited with restart policy rule"
	}
	return c, has
}

func findCondition(list []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

func conditionTrue(s *corev1.PodStatus, t corev1.PodConditionType) bool {
	if s == nil {
		return false
	}
	c := findCondition(s.Conditions, t)
	return c != nil && c.Status == corev1.ConditionTrue
}
