package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// mergeContainers merges the statuses of containers by name, in our order. One
// that we no longer report is kept as it was, at the end: containers never leave
// a pod's spec.
func mergeContainers(api, ours []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(api) == 0 && len(ours) == 0 {
		return ours
	}
	merged := make([]corev1.ContainerStatus, 0, max(len(api), len(ours)))
	for _, is := range ours {
		is.State, is.LastTerminationState = wholeSeconds(is.State), wholeSeconds(is.LastTerminationState)
		if i := containerAt(api, is.Name); i >= 0 {
			is = mergeContainer(api[i], is)
		}
		merged = append(merged, is)
	}
	for _, was := range api {
		if containerAt(merged, was.Name) < 0 {
			merged = append(merged, was)
		}
	}
	return merged
}

func containerAt(list []corev1.ContainerStatus, name string) int {
	return slices.IndexFunc(list, func(c corev1.ContainerStatus) bool { return c.Name == name })
}

// mergeContainer keeps what must not be lost of a container's former status.
func mergeContainer(was, is corev1.ContainerStatus) corev1.ContainerStatus {
	is.RestartCount = max(was.RestartCount, is.RestartCount)
	if is.ImageID == "" && is.ContainerID == was.ContainerID {
		is.ImageID = was.ImageID
	}
	end := was.State.Terminated
	switch {
	case end == nil || sameEnd(end, is.State.Terminated):
		// The end before: ours may have forgotten it or hold an older one. The
		// words for an end may get better later.
		if newer(was.LastTerminationState.Terminated, is.LastTerminationState.Terminated) &&
			!sameEnd(was.LastTerminationState.Terminated, is.State.Terminated) {
			is.LastTerminationState = was.LastTerminationState
		}
	case is.State.Running != nil && is.ContainerID == was.ContainerID, older(is.State.Terminated, end):
		// Nothing that has ended runs again, and no older end comes after.
		is.State, is.LastTerminationState = was.State, was.LastTerminationState
		is.ContainerID = was.ContainerID
		is.Ready, is.Started = was.Ready, was.Started
	case newer(end, is.LastTerminationState.Terminated):
		// A new attempt, or the wait for one: the end moves to lastState.
		is.LastTerminationState = was.State
	}
	return is
}

// sameEnd says that both tell of the end of the same container.
func sameEnd(a, b *corev1.ContainerStateTerminated) bool {
	if a == nil || b == nil {
		return false
	}
	if a.ContainerID != "" || b.ContainerID != "" {
		return a.ContainerID == b.ContainerID
	}
	return a.FinishedAt.Equal(&b.FinishedAt) && a.ExitCode == b.ExitCode && a.Reason == b.Reason
}

// newer says that end a came after b; an end came after none.
func newer(a, b *corev1.ContainerStateTerminated) bool {
	switch {
	case a == nil || sameEnd(a, b):
		return false
	case b == nil:
		return true
	}
	return b.FinishedAt.Before(&a.FinishedAt)
}

// older says that end a, of another container, came before b.
func older(a, b *corev1.ContainerStateTerminated) bool { return a != nil && newer(b, a) }

// wholeSeconds cuts a state's times to what the API keeps of them.
func wholeSeconds(s corev1.ContainerState) corev1.ContainerState {
	if r := s.Running; r != nil && r.StartedAt.Nanosecond() != 0 {
		s.Running = &corev1.ContainerStateRunning{StartedAt: *seconds(&r.StartedAt)}
	}
	if t := s.Terminated; t != nil && (t.StartedAt.Nanosecond() != 0 || t.FinishedAt.Nanosecond() != 0) {
		end := *t
		end.StartedAt, end.FinishedAt = *seconds(&t.StartedAt), *seconds(&t.FinishedAt)
		s.Terminated = &end
	}
	return s
}
