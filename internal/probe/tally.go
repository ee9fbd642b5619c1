package probe

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// Tally counts the results of a probe against its thresholds. It is a value;
// the zero value is of no use.
type Tally struct {
	// Outcome is what holds now.
	Outcome lifecycle.Outcome
	// Done says that no further check may change the outcome: startup was
	// decided, or liveness has failed and its container will be stopped.
	Done bool

	kind             lifecycle.ProbeKind
	success, failure int  // thresholds, at least 1
	last             bool // the last result
	run              int  // how many times in a row; at most the larger threshold
}

// NewTally begins a tally. last is the outcome known from before, Undecided if
// there is none: then a container counts as alive, as not ready, and as neither
// started nor failed to start.
func NewTally(kind lifecycle.ProbeKind, spec *corev1.Probe, last lifecycle.Outcome) Tally {
	t := Tally{
		Outcome: last,
		kind:    kind,
		success: max(1, int(spec.SuccessThreshold)),
		failure: max(1, int(spec.FailureThreshold)),
	}
	if last == lifecycle.Undecided {
		t.Outcome = initial(kind)
	}
	t.Done = t.final()
	return t
}

func initial(kind lifecycle.ProbeKind) lifecycle.Outcome {
	switch kind {
	case lifecycle.LivenessProbe:
		return lifecycle.Success
	case lifecycle.ReadinessProbe:
		return lifecycle.Failure
	case lifecycle.StartupProbe:
	}
	return lifecycle.Undecided
}

// Add counts one result. Results after the end change nothing.
func (t Tally) Add(ok bool) (next Tally, flipped bool) {
	if t.Done {
		return t, false
	}
	if ok != t.last || t.run == 0 {
		t.last, t.run = ok, 0
	}
	threshold, outcome := t.failure, lifecycle.Failure
	if ok {
		threshold, outcome = t.success, lifecycle.Success
	}
	t.run = min(t.run+1, threshold)
	if t.run < threshold || t.Outcome == outcome {
		return t, false
	}
	t.Outcome = outcome
	t.Done = t.final()
	return t, true
}

func (t Tally) final() bool {
	switch t.kind {
	case lifecycle.StartupProbe:
		return t.Outcome != lifecycle.Undecided
	case lifecycle.LivenessProbe:
		return t.Outcome == lifecycle.Failure
	case lifecycle.ReadinessProbe:
	}
	return false
}
