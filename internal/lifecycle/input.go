package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Input is all that a decision depends on. Decide changes nothing in it.
type Input struct {
	// Pod is the desired pod. A deletion timestamp asks for its end. Its status
	// is ignored: what others wrote there reaches the core as Facts.Gates.
	Pod *corev1.Pod
	// Stop asks for the pod's end for a reason of the node's; nil: it may stay.
	Stop *Stop
	// Reject says that the pod may not run here; nil: it was admitted.
	Reject *Reject
	// Observed is what the runtime was last seen to run.
	Observed Observed
	// UnderWay holds the keys of all actions that were started and have not
	// ended, cancelled ones included.
	UnderWay []Key
	// History is what the runtime can't tell.
	History History
	// Facts are what the node knows.
	Facts Facts
	// Now is the time of the decision.
	Now time.Time
}

// Stop is a wish of the node to end a pod: eviction, preemption, shutdown.
// The pod ends as Failed with Reason and Message, but for AsDeleted.
type Stop struct {
	Reason  string
	Message string
	// AsDeleted says that the pod's exit codes tell whether it failed, as they do of
	// a pod that is deleted: it was asked for by who runs the pod.
	AsDeleted bool
	// Grace replaces the pod's grace period where it is shorter; nil: the pod's.
	Grace *time.Duration
	// Conditions are reported with the stop, for example DisruptionTarget.
	Conditions []corev1.PodCondition
}

// Reject is the verdict of admission against a pod. It ends as Failed and
// nothing of it ever runs.
type Reject struct {
	Reason  string // CamelCase, for example "NodeAffinity"
	Message string
}

// Facts are what the node knows and the pod's rules need.
type Facts struct {
	// RuntimeName is the scheme of container ids in the status: NAME://ID.
	RuntimeName string
	// HostIPs are the node's addresses, the primary one first; may be empty.
	HostIPs []string
	// Gates are the pod's conditions that others wrote; readiness gates are
	// looked up here.
	Gates []corev1.PodCondition
	// RecursiveReadOnly says that the runtime can mount recursively read-only.
	RecursiveReadOnly bool
}
