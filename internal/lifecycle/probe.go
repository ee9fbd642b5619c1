package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ProbeKind is startup, readiness or liveness.
type ProbeKind string

// The kinds of probes.
const (
	StartupProbe   ProbeKind = "startup"
	ReadinessProbe ProbeKind = "readiness"
	LivenessProbe  ProbeKind = "liveness"
)

// ProbeKey is the identity of a probe that should run. A container that was
// restarted has another id, so that its probes start anew.
type ProbeKey struct {
	ContainerID string
	Kind        ProbeKind
}

// Outcome is what a probe says once its thresholds are met.
type Outcome string

// The outcomes of a probe; Undecided is the zero value.
const (
	Undecided Outcome = ""
	Success   Outcome = "success"
	Failure   Outcome = "failure"
)

// Probe is a probe that should be running now.
type Probe struct {
	Key ProbeKey
	// Container is the container's name, for named ports, logs and events.
	Container string
	// Spec is the probe as configured, defaults filled in.
	Spec *corev1.Probe
	// IP is the pod's address, the host's on the host network.
	IP string
	// StartedAt is when the container started; initial delays count from here.
	StartedAt time.Time
	// Last is the outcome as far as it was known when the probe was first
	// wanted: after a restart of the agent, the remembered one.
	Last Outcome
}
