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
	// Begin is what this decision begins. It takes effect when the decision is
	// folded into the history, which stamps its time; the decision after that
	// acts on it. Step does both.
	Begin Begin
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

// Begin is the begun end of a pod or of some of its containers.
type Begin struct {
	// End begins, or shortens, the end of the pod.
	End *End
	// Stops begin the stop of single containers.
	Stops []ContainerStop
	// RestartAll begins a new round: all containers start over.
	RestartAll bool
}

// Empty says that nothing begins.
func (b Begin) Empty() bool {
	return b.End == nil && len(b.Stops) == 0 && !b.RestartAll
}

// End is how a pod is asked to end.
type End struct {
	Grace      time.Duration
	Reason     string
	Message    string
	Failed     bool
	Conditions []corev1.PodCondition
}

// ContainerStop is how a container is asked to stop.
type ContainerStop struct {
	Container string
	ID        string
	Grace     time.Duration
	Why       string
	// Restart says that it starts again whatever its restart policy says.
	Restart bool
	// Signal says that the stop signal is due: the hook has run, or there is
	// none, and it is the container's turn.
	Signal bool
}
