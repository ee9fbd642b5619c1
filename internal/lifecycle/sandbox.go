package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// sandboxWait is the least time between two sandboxes of a pod: one that breaks
// as soon as it is made must not keep the node busy.
const sandboxWait = 5 * time.Second

// sandboxUsable says that containers can be started in s.
func sandboxUsable(pod *corev1.Pod, s *Sandbox) bool {
	if !s.Ready || s.HostNetwork != pod.Spec.HostNetwork {
		return false
	}
	return s.HostNetwork || len(s.IPs) > 0
}

// sandboxRules bring up a usable sandbox, with volumes prepared for it, if any
// container may still start. They answer whether containers can be started.
func (v *view) sandboxRules() bool {
	v.retireSandboxes()
	if v.sandboxOK {
		return true
	}
	if v.sandbox != nil {
		v.because(ReasonPodSandboxNotReady, "", "the sandbox is not ready, or its network mode changed: everything in it stops")
		if !v.stopAll("Pod sandbox changed, it will be killed and re-created.") {
			return false
		}
		if v.toStop(v.sandbox) {
			v.wantUnlessFailing(Action{Kind: StopSandbox, SandboxID: v.sandbox.ID, Why: "sandbox changed"})
			return false
		}
	}
	if v.h.SandboxAttempts > 0 && !v.underWay(CreateSandbox) && v.waits(v.h.SandboxMadeAt.Add(sandboxWait)) {
		return false
	}
	attempt := v.h.SandboxAttempts
	if v.h.VolumesFor != attempt+1 {
		if f, ok := v.h.Failures[PrepareVolumes]; ok {
			v.because(f.Reason, "", f.Message)
			if v.waits(f.Until) {
				return false
			}
		}
		v.want(Action{Kind: PrepareVolumes, Attempt: attempt})
		return false
	}
	if f, ok := v.h.Failures[CreateSandbox]; ok {
		v.because(f.Reason, "", f.Message)
		if v.waits(f.Until) {
			return false
		}
	}
	v.want(Action{Kind: CreateSandbox, Attempt: attempt})
	return false
}

// toStop says that sandbox s has to be stopped. That one that is not ready, and
// was not stopped, still holds something is known of the newest only: before
// another is made, the one before is stopped.
func (v *view) toStop(s *Sandbox) bool {
	return s.Ready || s == v.sandbox && v.h.StoppedSandbox != s.ID
}

// retireSandboxes stops and removes all sandboxes but the newest.
func (v *view) retireSandboxes() {
	if len(v.sandboxes) < 2 {
		return
	}
	holds := map[string]bool{}
	for _, c := range v.in.Observed.Containers {
		holds[c.SandboxID] = true
	}
	for _, s := range v.sandboxes[:len(v.sandboxes)-1] {
		switch {
		case s.Ready:
			v.wantUnlessFailing(Action{Kind: StopSandbox, SandboxID: s.ID, Why: "an older sandbox of the pod"})
		case !holds[s.ID]:
			v.wantUnlessFailing(Action{Kind: RemoveSandbox, SandboxID: s.ID, Why: "an older sandbox of the pod"})
		}
	}
}

// stopAll stops every live container, all at once, and answers whether none is
// left.
func (v *view) stopAll(why string) bool {
	none := true
	for m := range v.members() {
		if m.starting {
			none = false
		}
		if m.alive() {
			none = false
			v.stop(m, stopReason{why: why, grace: podGrace(v.pod), turn: true})
		}
	}
	for _, c := range v.strays {
		if c.State == ContainerRunning || c.State == ContainerUnknown {
			none = false
		}
	}
	v.stopStrays()
	return none
}
