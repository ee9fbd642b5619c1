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

// livePhase is Pending until all containers were started once, then Running.
func (v *view) livePhase(s *corev1.PodStatus, before corev1.PodPhase) corev1.PodPhase {
	if before == corev1.PodRunning {
		return corev1.PodRunning
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			st := &list[i]
			begun := st.State.Running != nil || st.State.Terminated != nil || st.LastTerminationState.Terminated != nil
			if !begun {
				return corev1.PodPending
			}
		}
	}
	for i, m := range v.init {
		st := &s.InitContainerStatuses[i]
		switch {
		case v.initialized():
		case m.kind == sidecar:
			if st.Started == nil || !*st.Started {
				return corev1.PodPending
			}
		case !st.Ready:
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}
