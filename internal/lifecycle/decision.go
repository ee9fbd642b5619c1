package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Decision says what should hold for a pod.
type Decision struct {
	// Work is what should be under way now, in order.
	Work []Action
	// Probes are the probes that should be running now.
	Probes []Probe
	// Status is what to report.
	Status corev1.PodStatus
	// LookAgain is when time alone changes this decision; zero: never.
	LookAgain time.Time
	// Stopped says that the pod has been asked to end and that none of its
	// containers runs or will run again (upstream's "terminated").
	Stopped bool
	// Finished says that nothing of the pod is left on the node and nothing
	// will come: its worker may go.
	Finished bool
	// Reasons say why, one for each choice made.
	Reasons []Reason
}

// Reason is one choice of a decision, in a code from reason.go and in words.
type Reason struct {
	Code      string
	Container string // empty: the pod
	Message   string
}
