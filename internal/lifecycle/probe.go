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

// probeRules say which probes should run: startup alone first, then readiness
// and liveness. While a container stops, only its readiness is still asked for.
func (v *view) probeRules() {
	ending := v.ending()
	for m := range v.members() {
		if m.kind == plainInit || m.kind == ephemeralContainer || !m.running() || m.starting {
			continue
		}
		stopping := ending || m.h.Stop != nil
		if m.spec.StartupProbe != nil && m.h.Probes[StartupProbe].Outcome != Success {
			if !stopping && m.h.Probes[StartupProbe].Outcome != Failure {
				v.probe(m, StartupProbe, m.spec.StartupProbe)
			}
			continue
		}
		if m.spec.ReadinessProbe != nil {
			v.probe(m, ReadinessProbe, m.spec.ReadinessProbe)
		}
		if m.spec.LivenessProbe != nil && !stopping {
			v.probe(m, LivenessProbe, m.spec.LivenessProbe)
		}
	}
}

func (v *view) probe(m *member, kind ProbeKind, spec *corev1.Probe) {
	v.d.Probes = append(v.d.Probes, Probe{
		Key: ProbeKey{ContainerID: m.h.ID, Kind: kind}, Container: m.spec.Name, Spec: spec,
		IP: v.podIP(), StartedAt: m.obs.StartedAt, Last: m.h.Probes[kind].Outcome,
	})
}
