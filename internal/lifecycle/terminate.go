package lifecycle

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lastWindow is the least time from stop signal to kill, whatever is left of
// the grace period. Source: kubelet 1.37; documented with container hooks.
const lastWindow = 2 * time.Second

// endRules begin the end of the pod when it is asked for or due, and bring an
// end that was begun nearer when a shorter grace period is asked for.
func (v *view) endRules() {
	ends := v.ends()
	t := v.h.Termination
	if t == nil {
		if len(ends) > 0 {
			v.d.Begin.End = &ends[0]
		}
		return
	}
	for i := range ends {
		if ends[i].Grace < t.Grace && !v.noneAlive() {
			v.d.Begin.End = &ends[i]
			t = &Termination{Grace: ends[i].Grace}
		}
	}
}

// ends are the wishes to end the pod, the most telling first.
func (v *view) ends() []End {
	var ends []End
	grace := podGrace(v.pod)
	if r := v.in.Reject; r != nil {
		ends = append(ends, End{Grace: grace, Reason: r.Reason, Message: r.Message, Failed: true})
	}
	if s := v.in.Stop; s != nil {
		g := grace
		if s.Grace != nil {
			g = min(g, max(*s.Grace, 0))
		}
		ends = append(ends, End{Grace: g, Reason: s.Reason, Message: s.Message, Failed: !s.AsDeleted, Conditions: s.Conditions})
	}
	if v.pod.DeletionTimestamp != nil {
		g := grace
		if s := v.pod.DeletionGracePeriodSeconds; s != nil {
			g = seconds(*s)
		}
		ends = append(ends, End{Grace: g})
	}
	if s := v.pod.Spec.ActiveDeadlineSeconds; s != nil && v.h.Termination == nil {
		began := v.h.Began
		if began.IsZero() {
			began = v.in.Now
		}
		if !v.waits(began.Add(seconds(*s))) {
			ends = append(ends, End{Grace: grace, Reason: ReasonDeadlineExceeded, Failed: true,
				Message: "Pod was active on the node longer than the specified deadline"})
		}
	}
	if v.h.Termination != nil || len(ends) > 0 {
		return ends
	}
	if m := v.initFailed(); m != nil {
		v.because(ReasonPodFailed, m.spec.Name, "an init container failed and is not started again")
		ends = append(ends, End{Grace: grace, Failed: true})
	} else if !v.someoneMayStart() {
		v.because(ReasonPodCompleted, "", "all main containers have ended and none starts again")
		ends = append(ends, End{Grace: grace})
	}
	return ends
}

// terminationRules stop everything, sidecars last and in reverse order, and
// then take the pod off the node as far as it should be. Whatever has not
// started yet never will.
func (v *view) terminationRules() {
	t := v.h.Termination
	turn := true // all that must stop before have stopped
	for m := range v.members() {
		if m.kind == sidecar {
			continue
		}
		if m.alive() || m.starting || m.unseen() {
			turn = false
		}
		if m.alive() {
			v.stop(m, stopReason{why: "Stopping container " + m.spec.Name, grace: t.Grace, turn: true})
		}
	}
	// KEP-753: sidecars stop in reverse order, after the main containers. Their
	// preStop hooks run at once.
	for i := len(v.init) - 1; i >= 0; i-- {
		m := v.init[i]
		if m.kind != sidecar {
			continue
		}
		if m.alive() {
			late := !v.in.Now.Before(t.Deadline)
			told := m.h.Stop != nil && !m.h.Stop.SignalAt.IsZero()
			if !turn && !late && !told {
				v.lookAt(t.Deadline)
			}
			v.stop(m, stopReason{why: "Stopping container " + m.spec.Name, grace: t.Grace, turn: turn || late})
		}
		if m.alive() || m.starting || m.unseen() {
			turn = false
		}
	}
	v.stopStrays()
	v.d.Stopped = turn && !v.strayAlive() && !v.underWay(StartContainer) && !v.underWay(CreateSandbox)
	if v.d.Stopped {
		v.removalRules()
	} else {
		v.because("Terminating", "", fmt.Sprintf("the pod ends; its grace period is %s", t.Grace))
	}
}

// removalRules free what a stopped pod still holds. The containers of a pod that
// is not deleted stay, for their logs.
func (v *view) removalRules() {
	deleted := v.pod.DeletionTimestamp != nil
	ready := false
	for i := range v.sandboxes {
		if s := &v.sandboxes[i]; v.toStop(s) {
			ready = true
			v.wantUnlessFailing(Action{Kind: StopSandbox, SandboxID: s.ID})
		}
	}
	for _, c := range sortedContainers(v.in.Observed.Containers) {
		if deleted || c.State == ContainerCreated {
			v.removeContainer(c)
		}
	}
	// What has taken effect and not ended is let end before the next step.
	if ready || v.letEnd(StopSandbox, RemoveContainer) {
		return
	}
	if deleted {
		if len(v.in.Observed.Containers) > 0 {
			return
		}
		for _, s := range v.sandboxes {
			v.wantUnlessFailing(Action{Kind: RemoveSandbox, SandboxID: s.ID})
		}
		if len(v.sandboxes) > 0 || v.letEnd(RemoveSandbox) {
			return
		}
	}
	if v.underWay(PrepareVolumes) {
		return // what it mounts late must be unmounted too
	}
	if v.h.VolumesFor > 0 || deleted && v.in.Observed.Leftovers || v.underWay(RemovePod) {
		v.wantUnlessFailing(Action{Kind: RemovePod})
		return
	}
	v.d.Finished = deleted && len(v.in.UnderWay) == 0
}

// letEnd wants what is under way of these kinds to go on, also when its effect
// can be seen already. It answers whether there is any.
func (v *view) letEnd(kinds ...ActionKind) bool {
	any := false
	for _, k := range slices.SortedFunc(slices.Values(v.in.UnderWay), Key.Compare) {
		if !slices.Contains(kinds, k.Kind) {
			continue
		}
		any = true
		a := Action{Kind: k.Kind, Container: k.Container, Attempt: k.Attempt}
		if k.Kind == RemoveContainer {
			a.ContainerID = k.ID
		} else {
			a.SandboxID = k.ID
		}
		if !slices.ContainsFunc(v.d.Work, func(w Action) bool { return w.Key() == k }) {
			v.want(a)
		}
	}
	return any
}

// wantUnlessFailing wants an action of the whole pod, with waits between tries.
func (v *view) wantUnlessFailing(a Action) {
	if f, ok := v.h.Failures[a.Kind]; ok {
		v.because(f.Reason, "", f.Message)
		if v.holdsBack(&f, a) {
			return
		}
	}
	v.want(a)
}

// holdsBack says whether failure f, of this or a like action, holds back a, and
// looks again when it no longer does. What is under way it does not hold back.
func (v *view) holdsBack(f *FailureHistory, a Action) bool {
	return f != nil && !slices.Contains(v.in.UnderWay, a.Key()) && v.waits(f.Until)
}

// ending says that the pod is to end, or ends.
func (v *view) ending() bool { return v.h.Termination != nil || v.d.Begin.End != nil }

// stopReason says how and why a container stops.
type stopReason struct {
	why     string
	grace   time.Duration
	restart bool
	turn    bool // its stop signal is not held back for the order of the stop
}

// stop brings a live container down: preStop hook, stop signal, kill.
func (v *view) stop(m *member, r stopReason) {
	name, s := m.spec.Name, m.h.Stop
	hook := m.preStopPending()
	if s == nil {
		v.d.Begin.Stops = append(v.d.Begin.Stops, ContainerStop{
			Container: name, ID: m.h.ID, Grace: r.grace, Why: r.why, Restart: r.restart, Signal: !hook && r.turn,
		})
		return
	}
	deadline := s.Deadline
	if t := v.h.Termination; t != nil && t.Deadline.Before(deadline) {
		deadline = t.Deadline
	}
	a := Action{Container: name, ContainerID: m.h.ID, Attempt: m.h.Attempts - 1, Until: deadline, Why: s.Why}
	if s.SignalAt.IsZero() {
		if hook && v.waits(deadline) {
			a.Kind = RunPreStop
			v.want(a)
			return
		}
		if r.turn {
			v.d.Begin.Stops = append(v.d.Begin.Stops, ContainerStop{Container: name, ID: m.h.ID, Signal: true})
		}
		return
	}
	a.Kind = StopContainer
	// A hook that took all the time must not take the signal's too, but cannot
	// stretch the whole by more than this (kubernetes#115817). Who asks for a
	// grace period of 0 wants it killed; the kubelet waits 2 s there too.
	now := s.Deadline.Equal(s.Since) || v.h.Termination != nil && v.h.Termination.Grace == 0
	if least := s.SignalAt.Add(lastWindow); !now && a.Until.Before(least) {
		a.Until = least
	}
	if !v.holdsBack(m.h.StopFailure, a) {
		v.want(a)
	}
}

// stopStrays stops live containers that nobody wants: older attempts that
// outlived their successor's start, names that left the spec. In a pod that goes
// on they are killed; in one that ends, and may be known by its leftovers alone,
// they have its grace period.
func (v *view) stopStrays() {
	for _, c := range v.strays {
		if c.State == ContainerRunning || c.State == ContainerUnknown {
			a := Action{Kind: StopContainer, Container: c.Name, ContainerID: c.ID, Attempt: c.Attempt,
				Until: c.CreatedAt, Why: "it is not a container of the pod as it should be"}
			if t := v.h.Termination; t != nil {
				a.Until = t.Deadline
			}
			if !v.holdsBack(v.h.Containers[c.Name].StopFailure, a) {
				v.want(a)
			}
		}
	}
}

func (v *view) strayAlive() bool {
	for _, c := range v.strays {
		if c.State == ContainerRunning || c.State == ContainerUnknown {
			return true
		}
	}
	return false
}

// removeDead removes dead containers but the newest two of each name: the last
// one's log is what "previous" shows.
func (v *view) removeDead() {
	for _, c := range v.strays {
		if c.State == ContainerRunning || c.State == ContainerUnknown {
			continue
		}
		if !v.inSpec(c.Name) || c.State == ContainerCreated || c.Attempt < v.h.Containers[c.Name].Attempts-2 {
			v.removeContainer(c)
		}
	}
}

func (v *view) inSpec(name string) bool {
	for m := range v.members() {
		if m.spec.Name == name {
			return true
		}
	}
	return false
}

func (v *view) removeContainer(c Container) {
	a := Action{Kind: RemoveContainer, Container: c.Name, ContainerID: c.ID, Attempt: c.Attempt}
	if !v.holdsBack(v.h.Containers[c.Name].StopFailure, a) {
		v.want(a)
	}
}

// podGrace is the pod's own grace period.
func podGrace(pod *corev1.Pod) time.Duration {
	s := pod.Spec.TerminationGracePeriodSeconds
	if s == nil {
		return corev1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return seconds(*s)
}

func seconds(s int64) time.Duration { return time.Duration(max(s, 0)) * time.Second }
