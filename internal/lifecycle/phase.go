package lifecycle

import corev1 "k8s.io/api/core/v1"

// phase is the pod's phase. It never leaves Succeeded or Failed, and reaches
// them only once nothing of the pod runs (kubernetes#98718).
func (v *view) phase(s, old *corev1.PodStatus) corev1.PodPhase {
	before := corev1.PodPending
	if old != nil && old.Phase != "" {
		before = old.Phase
	}
	if before == corev1.PodSucceeded || before == corev1.PodFailed {
		return before
	}
	t := v.h.Termination
	if t == nil || !v.d.Stopped {
		return v.livePhase(s, before)
	}
	if t.Failed {
		return corev1.PodFailed
	}
	// A pod whose main containers all ended well has succeeded, whatever became
	// of its sidecars; one that was stopped before that has failed.
	for i := range s.ContainerStatuses {
		x := v.main[i].h.Exit
		if x == nil || x.failed() {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}

// livePhase is Pending until all main containers were started once, which the
// init containers come before, and Running from then on.
func (v *view) livePhase(s *corev1.PodStatus, before corev1.PodPhase) corev1.PodPhase {
	if before == corev1.PodRunning {
		return corev1.PodRunning
	}
	for i := range s.ContainerStatuses {
		st := &s.ContainerStatuses[i]
		if st.State.Running == nil && st.State.Terminated == nil && st.LastTerminationState.Terminated == nil {
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}
