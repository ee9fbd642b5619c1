package lifecycle

// Decide says what should hold for the pod, given what is known now.
// It is pure: no clock, no I/O, no goroutine, no log. Equal input, equal answer.
func Decide(in Input) Decision {
	v := newView(in)
	if in.Observed.At.IsZero() {
		// Nothing is known yet: keep what was reported, and wait for a look.
		v.status()
		return v.d
	}
	v.endRules()
	if v.h.Termination != nil {
		v.terminationRules()
	} else if v.d.Begin.End == nil {
		v.runRules()
	}
	v.probeRules()
	v.status()
	return v.d
}

// Step decides, folds what the decision reports and begins into the history,
// and goes on until nothing more begins. It is what a worker calls.
func Step(in Input) (Decision, History) {
	// A decision begins each thing once, so this ends; the bound is a guard
	// against a bug, not part of the rules.
	for range 16 {
		d := Decide(in)
		if d.Begin.Empty() {
			return d, in.History.Apply(Decided{Decision: d, At: in.Now})
		}
		// Nobody sees the status of a decision that only begins something.
		in.History = in.History.begun(d.Begin, in.Now)
	}
	panic("lifecycle: decisions for pod " + string(in.Pod.UID) + " keep beginning something")
}

// runRules bring a pod to its desired state.
func (v *view) runRules() {
	if v.restartAllRule() {
		return
	}
	ready := v.sandboxRules()
	if !ready {
		return
	}
	v.stopStrays()
	v.removeDead()
	for _, m := range v.ephemeral {
		if m.h.Attempts == 0 || m.starting {
			v.start(m)
		}
	}
	if v.initRules() {
		v.mainRules()
	}
}
