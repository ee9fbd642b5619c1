package agent

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/lifecycle"
)

// Description is what the agent knows of a pod.
type Description struct {
	Pod *corev1.Pod `json:"pod"`
	// Probes are those that run, and before them, the oldest first, some that ran
	// for containers which are no more.
	Probes []ProbeRecord `json:"probes"`
	// Events are what happened, by when it happened last, the oldest first.
	Events []PastEvent `json:"events"`
}

// ProbeRecord is a probe with its last checks.
type ProbeRecord struct {
	Container   string          `json:"container"`
	ContainerID string          `json:"containerID"`
	Kind        string          `json:"kind"` // startup, readiness or liveness
	Live        bool            `json:"live"` // it runs
	Period      metav1.Duration `json:"period"`
	Checks      []ProbeCheck    `json:"checks"` // the oldest first
}

// ProbeCheck is one check of a probe.
type ProbeCheck struct {
	Time   metav1.MicroTime `json:"time"`
	Took   metav1.Duration  `json:"took"`
	OK     bool             `json:"ok"`
	Output string           `json:"output,omitempty"`
}

// Describe tells all that is known of the pods with these uids.
func (a *Agent) Describe(uids []types.UID) []Description {
	var all []Description
	for _, p := range a.Pods() {
		if slices.Contains(uids, p.UID) {
			all = append(all, Description{Pod: p, Probes: a.probesOf(p), Events: a.feed.past.of(p.UID)})
		}
	}
	return all
}

func (a *Agent) probesOf(p *corev1.Pod) []ProbeRecord {
	all := []ProbeRecord{}
	for _, r := range a.probes.Records(p.UID) {
		record := ProbeRecord{Container: r.Container, ContainerID: r.Key.ContainerID, Kind: string(r.Key.Kind), Live: r.Live, Checks: []ProbeCheck{}}
		if spec := probeSpec(p, r.Container, r.Key.Kind); spec != nil {
			record.Period.Duration = probeTiming(p, r.Container, r.Key.Kind, spec).Period
		}
		for _, c := range r.Checks {
			if c.Early && !c.OK {
				continue // it counts for nothing
			}
			record.Checks = append(record.Checks, ProbeCheck{
				Time: metav1.NewMicroTime(c.At), Took: metav1.Duration{Duration: c.Took}, OK: c.OK, Output: c.Output,
			})
		}
		all = append(all, record)
	}
	return all
}

// probeSpec is the probe of a kind of a container; nil: it has none.
func probeSpec(p *corev1.Pod, container string, kind lifecycle.ProbeKind) *corev1.Probe {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.Name != container {
			continue
		}
		switch kind {
		case lifecycle.StartupProbe:
			return c.StartupProbe
		case lifecycle.ReadinessProbe:
			return c.ReadinessProbe
		case lifecycle.LivenessProbe:
			return c.LivenessProbe
		}
	}
	return nil
}
