package lifecycle

import "fmt"

// mainRules start the main containers, in spec order the first time, and keep
// them going.
func (v *view) mainRules() {
	held := false // an earlier one is on its way up for the first time
	for _, m := range v.main {
		first := !m.current && !m.exited()
		switch {
		case m.alive():
			v.keep(m)
			held = held || m.postStartPending() && m.h.Attempts == 1
		case v.runsOnce(m):
		case m.unseen():
			held = true
		case first && held && !m.starting:
		default:
			begun := v.start(m)
			held = held || begun && (first || m.h.Attempts <= 1)
		}
	}
}

// keep watches over a live container: its hook, its definition, its probes.
func (v *view) keep(m *member) {
	name := m.spec.Name
	switch {
	case m.starting:
		v.start(m)
	case m.h.Stop != nil:
		v.stop(m, stopReason{turn: true, grace: m.h.Stop.Deadline.Sub(m.h.Stop.Since)})
	case m.obs.State == ContainerUnknown:
		v.stopUnknown(m)
	case m.postStartPending():
		v.want(Action{Kind: RunPostStart, Container: name, ContainerID: m.h.ID, Attempt: m.h.Attempts - 1})
	case m.h.PostStart.Failed:
		v.because(ReasonPostStartHookError, name, m.h.PostStart.Message)
		v.stop(m, stopReason{why: "FailedPostStartHook", grace: podGrace(v.pod), turn: true})
	case m.obs.Hash != "" && m.obs.Hash != ContainerHash(m.spec):
		v.stop(m, stopReason{why: fmt.Sprintf("Container %s definition changed, will be restarted", name),
			grace: podGrace(v.pod), restart: true, turn: true})
	case m.h.Probes[StartupProbe].Outcome == Failure:
		v.stopUnhealthy(m, StartupProbe)
	case m.h.Probes[LivenessProbe].Outcome == Failure:
		v.stopUnhealthy(m, LivenessProbe)
	}
}

// stopUnknown stops a container that may or may not run: two of one name must
// never run at once.
func (v *view) stopUnknown(m *member) {
	v.stop(m, stopReason{why: fmt.Sprintf("Container %s is in an unknown state, it will be stopped before it starts again", m.spec.Name),
		grace: podGrace(v.pod), turn: true})
}

// stopUnhealthy stops a container whose probe failed. One that may run again
// does, however it ends: a server that ends well when it is told to has not done
// its work. In one that may not, a rule on its exit code can still say otherwise.
// Source: kubelet 1.37.
func (v *view) stopUnhealthy(m *member, kind ProbeKind) {
	spec := m.spec.LivenessProbe
	if kind == StartupProbe {
		spec = m.spec.StartupProbe
	}
	if spec == nil {
		return // the probe was taken out of the spec
	}
	grace := podGrace(v.pod)
	if spec.TerminationGracePeriodSeconds != nil {
		grace = seconds(*spec.TerminationGracePeriodSeconds)
	}
	r := stopReason{why: fmt.Sprintf("Container %s failed %s probe", m.spec.Name, kind), grace: grace, turn: true}
	if r.restart = !neverRestarts(v.pod, m.spec); r.restart {
		r.why += ", will be restarted"
	}
	v.stop(m, r)
}

// restartAllRule begins a new round when a container's exit asks for it, and
// stops what runs of an older round. It answers whether the pod is busy with it.
func (v *view) restartAllRule() bool {
	for m := range v.members() {
		if m.kind == ephemeralContainer || !m.exited() || m.h.Round != v.h.RestartAll || m.starting {
			continue
		}
		if restartsAll(m.spec, *m.h.Exit) {
			v.because(ReasonRestartingAllContainers, m.spec.Name, "its exit code starts all containers of the pod over")
			v.d.Begin.RestartAll = true
			return true
		}
	}
	busy := false
	for m := range v.members() {
		if m.kind == ephemeralContainer || m.h.Attempts == 0 || m.h.Round == v.h.RestartAll {
			continue
		}
		if m.alive() {
			busy = true
			v.stop(m, stopReason{why: "all containers of the pod start over", grace: podGrace(v.pod), restart: true, turn: true})
		} else if m.starting {
			busy = true
		}
	}
	return busy
}

// runsOnce says that m, which is no sidecar, has nothing more to do: it has ended
// and neither its policy nor why it was stopped starts it again.
func (v *view) runsOnce(m *member) bool {
	if !m.exited() || m.starting || m.h.Round != v.h.RestartAll {
		return false
	}
	return !m.h.Exit.Restart && !restarts(v.pod, m.spec, *m.h.Exit)
}

// someoneMayStart says that some main container has yet to run.
func (v *view) someoneMayStart() bool {
	for _, m := range v.main {
		if !v.runsOnce(m) {
			return true
		}
	}
	return false
}

func (v *view) noneAlive() bool {
	for m := range v.members() {
		if m.alive() || m.starting || m.unseen() {
			return false
		}
	}
	return true
}
