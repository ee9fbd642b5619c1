package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unknownExitCode stands in the status where nobody knows how a container
// ended. It is no code that a process can have.
const unknownExitCode = -1

// status makes what to report: containers, phase, conditions, addresses.
func (v *view) status() {
	old := v.h.Status
	s := corev1.PodStatus{ObservedGeneration: v.pod.Generation, QOSClass: QOSClass(v.pod)}
	if old != nil && old.StartTime != nil {
		s.StartTime = old.StartTime
	} else {
		s.StartTime = stamp(v.in.Now)
	}
	for _, m := range v.init {
		s.InitContainerStatuses = append(s.InitContainerStatuses, v.containerStatus(m, old))
	}
	for _, m := range v.main {
		s.ContainerStatuses = append(s.ContainerStatuses, v.containerStatus(m, old))
	}
	for _, m := range v.ephemeral {
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, v.containerStatus(m, old))
	}
	s.Phase = v.phase(&s, old)
	if t := v.h.Termination; t != nil {
		s.Reason, s.Message = t.Reason, t.Message
	} else if e := v.d.Begin.End; e != nil {
		s.Reason, s.Message = e.Reason, e.Message
	}
	v.addresses(&s, old)
	v.conditions(&s, old)
	v.d.Status = s
}

// stamp is t as the API keeps it: whole seconds.
func stamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second).Local()}
}

func stampOrZero(t time.Time) metav1.Time {
	if s := stamp(t); s != nil {
		return *s
	}
	return metav1.Time{}
}

func (v *view) containerStatus(m *member, old *corev1.PodStatus) corev1.ContainerStatus {
	prev := findStatus(old, m)
	undecided := m.waiting == nil && m.h.Attempts > 0 && m.h.Exit == nil &&
		(m.obs == nil || m.obs.State == ContainerCreated)
	if undecided && prev != nil {
		// The start is under way, or made and not seen: what was reported stands.
		return *prev.DeepCopy()
	}
	st := corev1.ContainerStatus{
		Name:         m.spec.Name,
		Image:        m.spec.Image,
		RestartCount: int32(m.h.RestartCount), //nolint:gosec // counts restarts one by one
		VolumeMounts: v.volumeMounts(m.spec),
	}
	if prev != nil {
		st.ImageID, st.ContainerID, st.Resources, st.AllocatedResources = prev.ImageID, prev.ContainerID, prev.Resources, prev.AllocatedResources
		st.User = prev.User
	}
	if m.h.ID != "" {
		st.ContainerID = v.containerID(m.h.ID)
	}
	if m.obs != nil {
		if m.obs.Image != "" {
			st.Image = m.obs.Image
		}
		st.ImageID = m.obs.ImageID
		st.Resources = m.spec.Resources.DeepCopy()
		st.AllocatedResources = m.spec.Resources.Requests.DeepCopy()
		if u := m.obs.User; u != nil {
			st.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: u.UID, GID: u.GID, SupplementalGroups: u.SupplementalGroups}}
		}
	}
	if m.spec.Lifecycle != nil {
		st.StopSignal = m.spec.Lifecycle.StopSignal
	}
	switch {
	case m.running():
		st.State.Running = &corev1.ContainerStateRunning{StartedAt: stampOrZero(m.obs.StartedAt)}
		st.LastTerminationState = v.terminated(m.h.LastExit)
	case m.alive() && m.postStartPending():
		st.State.Waiting = v.defaultWaiting()
		st.State.Waiting.Message = "the postStart hook is running"
		st.LastTerminationState = v.terminated(m.h.LastExit)
	case m.alive() && m.h.PostStart.Failed:
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: ReasonPostStartHookError, Message: m.h.PostStart.Message}
		st.LastTerminationState = v.terminated(m.h.LastExit)
	case m.alive(): // unknown to the runtime: as it was
		if prev != nil {
			return *prev.DeepCopy()
		}
		st.State.Waiting = v.defaultWaiting()
	case m.waiting != nil:
		st.State.Waiting = m.waiting
		st.LastTerminationState = v.terminated(lastOf(m.h.Exit, m.h.LastExit))
	case m.h.Exit != nil && m.h.Exit.Restart && !v.ending() && !restarts(v.pod, m.spec, *m.h.Exit):
		// Never said to have ended: the API would let it not run again.
		st.State.Waiting = v.defaultWaiting()
		st.LastTerminationState = v.terminated(m.h.Exit)
	case m.h.Exit != nil:
		st.State = v.terminated(m.h.Exit)
		st.LastTerminationState = v.terminated(m.h.LastExit)
	default:
		st.State.Waiting = v.defaultWaiting()
		st.LastTerminationState = v.terminated(m.h.LastExit)
	}
	if x := v.stillReported(m); x != nil {
		st.State, st.LastTerminationState = v.terminated(x), corev1.ContainerState{}
		if m.h.Exit != nil {
			st.LastTerminationState = v.terminated(m.h.LastExit)
		}
	}
	v.readiness(m, &st)
	return st
}

// stillReported is the end that a container goes on being reported with although
// it runs again, as init containers do in a new sandbox: the API accepts no other
// state after an end that the policy does not restart, until another end.
// Source: ValidatePodStatusUpdate.
func (v *view) stillReported(m *member) *Exit {
	forGood := func(x *Exit) bool {
		return x != nil && !x.Restart && !restarts(v.pod, m.spec, *x)
	}
	if m.kind != plainInit || hasRestartAllRule(v.pod) || !forGood(m.h.Exit) && !forGood(m.h.LastExit) {
		return nil
	}
	return lastOf(m.h.Exit, m.h.LastExit)
}

func (v *view) readiness(m *member, st *corev1.ContainerStatus) {
	started := m.running()
	switch m.kind {
	case plainInit:
		st.Ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
		started = st.State.Running != nil
	case ephemeralContainer:
	case sidecar, mainContainer:
		started = m.startupPassed()
		st.Ready = started && (m.spec.ReadinessProbe == nil || m.h.Probes[ReadinessProbe].Outcome == Success)
	}
	st.Started = &started
}

// defaultWaiting is what a container is said to wait for that nobody has begun
// to start; what holds up the pod is in its message.
func (v *view) defaultWaiting() *corev1.ContainerStateWaiting {
	w := &corev1.ContainerStateWaiting{Reason: ReasonContainerCreating}
	if len(v.init) > 0 {
		w.Reason = ReasonPodInitializing
	}
	for _, k := range []ActionKind{PrepareVolumes, CreateSandbox} {
		if f, ok := v.h.Failures[k]; ok {
			w.Message = f.Reason + ": " + f.Message
		}
	}
	return w
}

func (v *view) terminated(x *Exit) corev1.ContainerState {
	if x == nil {
		return corev1.ContainerState{}
	}
	t := &corev1.ContainerStateTerminated{
		ExitCode: x.Code, Signal: x.Signal, Reason: x.Reason, Message: x.Message,
		StartedAt: stampOrZero(x.StartedAt), FinishedAt: stampOrZero(x.FinishedAt),
	}
	if x.ID != "" {
		t.ContainerID = v.containerID(x.ID)
	}
	if x.Unknown {
		t.ExitCode = unknownExitCode
	}
	return corev1.ContainerState{Terminated: t}
}

func (v *view) containerID(id string) string { return v.in.Facts.RuntimeName + "://" + id }

func lastOf(a, b *Exit) *Exit {
	if a != nil {
		return a
	}
	return b
}

func findStatus(s *corev1.PodStatus, m *member) *corev1.ContainerStatus {
	if s == nil {
		return nil
	}
	list := s.ContainerStatuses
	switch m.kind {
	case plainInit, sidecar:
		list = s.InitContainerStatuses
	case ephemeralContainer:
		list = s.EphemeralContainerStatuses
	case mainContainer:
	}
	for i := range list {
		if list[i].Name == m.spec.Name {
			return &list[i]
		}
	}
	return nil
}

func (v *view) volumeMounts(c *corev1.Container) []corev1.VolumeMountStatus {
	var out []corev1.VolumeMountStatus
	for _, vm := range c.VolumeMounts {
		s := corev1.VolumeMountStatus{Name: vm.Name, MountPath: vm.MountPath, ReadOnly: vm.ReadOnly}
		if vm.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if r := vm.RecursiveReadOnly; r != nil && v.in.Facts.RecursiveReadOnly && *r != corev1.RecursiveReadOnlyDisabled {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		out = append(out, s)
	}
	return out
}

// addresses are the sandbox's, or the host's on the host network. They stay
// once known, until another sandbox has others.
func (v *view) addresses(s, old *corev1.PodStatus) {
	for _, ip := range v.in.Facts.HostIPs {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
	}
	if len(s.HostIPs) > 0 {
		s.HostIP = s.HostIPs[0].IP
	}
	for _, ip := range v.podIPs() {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(s.PodIPs) == 0 && old != nil {
		s.PodIPs = old.PodIPs
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

func (v *view) podIPs() []string {
	switch {
	case v.sandbox == nil:
		return nil
	case v.pod.Spec.HostNetwork:
		return v.in.Facts.HostIPs
	}
	return v.sandbox.IPs
}

func (v *view) podIP() string {
	if ips := v.podIPs(); len(ips) > 0 {
		return ips[0]
	}
	return ""
}
