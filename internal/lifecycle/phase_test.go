package lifecycle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A phase that was reported stands, whatever became of what is known.
func TestPhaseNeverGoesBack(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, before := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed} {
		pod, err := podFrom("containers=app")
		if err != nil {
			t.Fatal(err)
		}
		d := Decide(Input{Pod: pod, Observed: Observed{At: now}, Now: now,
			History: History{Began: now, Status: &corev1.PodStatus{Phase: before}}})
		if d.Status.Phase != before {
			t.Errorf("from %s to %s", before, d.Status.Phase)
		}
	}
}

// oraclePhase is the phase by counting container statuses, written without a
// look at phase.go. Scenarios and the generated runs are held against it.
func oraclePhase(pod *corev1.Pod, s *corev1.PodStatus, before corev1.PodPhase, ended *Termination) corev1.PodPhase {
	if before == corev1.PodSucceeded || before == corev1.PodFailed {
		return before
	}
	state := map[string]corev1.ContainerStatus{}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for _, c := range list {
			state[c.Name] = c
		}
	}
	if ended != nil {
		good := 0
		for _, c := range pod.Spec.Containers {
			if t := state[c.Name].State.Terminated; t != nil && t.ExitCode == 0 {
				good++
			}
		}
		if good == len(pod.Spec.Containers) && !ended.Failed {
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	}
	if before == corev1.PodRunning {
		return corev1.PodRunning
	}
	waiting, begun := 0, 0
	for _, c := range pod.Spec.Containers {
		if st := state[c.Name]; st.State.Waiting != nil && st.LastTerminationState.Terminated == nil {
			waiting++
		} else {
			begun++
		}
	}
	if waiting > 0 || begun == 0 {
		return corev1.PodPending
	}
	return corev1.PodRunning
}
