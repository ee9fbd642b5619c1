package cli

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
)

// podState is all that a run knows of one of its pods.
type podState struct {
	ref   agent.Ref
	name  string // as it is shown
	spec  *corev1.PodSpec
	since time.Time // when it was asked for
	// joined says that it was there before; known with the first status.
	joined bool
	status *corev1.PodStatus
	gone   bool
	// asked says that the end of the pod was seen to be asked for or to begin; see
	// stopping.
	asked   bool
	warning *agent.Event // the newest
	kills   kills
	checks  map[string]*agent.Event   // the newest check that failed, by container
	pulls   map[string]agent.Progress // by container, while they last
}

// board is what a run knows of its pods. One goroutine uses it, or it is guarded
// by its user.
type board struct {
	pods  []*podState // in the order of the manifests
	byUID map[types.UID]*podState
}

// newBoard makes a board of pods and the names they got, in the same order.
func newBoard(pods []*corev1.Pod, refs []agent.Ref, now time.Time) *board {
	b := &board{byUID: make(map[types.UID]*podState)}
	names := make(map[string]int)
	for _, r := range refs {
		names[r.Name]++
	}
	for i, r := range refs {
		p := &podState{ref: r, name: r.Name, spec: &pods[i].Spec, since: now, checks: make(map[string]*agent.Event), pulls: make(map[string]agent.Progress)}
		if names[r.Name] > 1 || r.Namespace != corev1.NamespaceDefault {
			p.name = r.Namespace + "/" + r.Name
		}
		b.pods = append(b.pods, p)
		b.byUID[r.UID] = p
	}
	return b
}

// take notes an update and returns the pod with the status before, which may be
// nil; no pod if it is none of the board's.
func (b *board) take(u agent.Update) (p *podState, before *corev1.PodStatus) {
	p = b.byUID[u.Pod.UID]
	if p == nil {
		return nil, nil
	}
	before = p.status
	switch u.Kind {
	case agent.StatusUpdate:
		if before == nil {
			// The API's times have no fractions of seconds.
			started := u.Status.StartTime
			p.joined = u.Time.Before(p.since) || started != nil && started.Time.Before(p.since.Truncate(time.Second))
		}
		p.status = u.Status
		p.asked = p.asked || u.Deleted != ""
		for name := range p.pulls {
			if c := statusOf(u.Status, name); c != nil && c.State.Waiting == nil {
				delete(p.pulls, name)
			}
		}
	case agent.GoneUpdate:
		p.gone = true
	case agent.EventUpdate:
		p.kills.note(u.Event, u.Time)
		if warns(u.Event) {
			p.warning = u.Event
			if u.Event.Reason == "Unhealthy" {
				p.checks[u.Event.Container] = u.Event
			}
		}
		p.asked = p.asked || endsPod(u.Event)
		if u.Event.Reason == "Pulled" || u.Event.Reason == "Failed" {
			delete(p.pulls, u.Event.Container)
		}
	case agent.ProgressUpdate:
		p.pulls[u.Progress.Container] = *u.Progress
	}
	return p, before
}

// warns says that an event is a warning which says more than a container's state:
// not only that it waits, or the reason.
func warns(e *agent.Event) bool {
	reason, isError := strings.CutPrefix(e.Message, "Error: ")
	return e.Type == corev1.EventTypeWarning && e.Reason != "BackOff" && !(isError && isReason(reason))
}

// endsPod says that an event tells of the end of a whole pod: a container that is
// killed alone is told to fail a probe or so.
func endsPod(e *agent.Event) bool {
	return e.Reason == "Killing" && strings.HasPrefix(e.Message, "Stopping container ")
}

func (b *board) uids() []types.UID {
	var uids []types.UID
	for _, p := range b.pods {
		uids = append(uids, p.ref.UID)
	}
	return uids
}

// all says whether something is true of every pod.
func (b *board) all(ok func(*podState) bool) bool {
	return !slices.ContainsFunc(b.pods, func(p *podState) bool { return !ok(p) })
}

func (p *podState) ready() bool { return !p.gone && p.status != nil && isReady(p.status) }

// over says that the pod will not do anything any more.
func (p *podState) over() bool { return p.gone || p.status != nil && isTerminal(p.status) }

// stopping says that the pod is being ended and has not ended yet.
func (p *podState) stopping() bool {
	return !p.over() && (p.asked || p.status != nil && (agent.Stopping(p.status) || agent.Ending(p.spec, p.status)))
}

func isReady(s *corev1.PodStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// containersOf lists the containers of a status in the order of their starts.
func containersOf(s *corev1.PodStatus) []corev1.ContainerStatus {
	return slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses)
}

func statusOf(s *corev1.PodStatus, name string) *corev1.ContainerStatus {
	for _, c := range containersOf(s) {
		if c.Name == name {
			return &c
		}
	}
	return nil
}

// isInit says whether a container is to end before the main ones start.
func (p *podState) isInit(container string) bool {
	return p.initContainer(container) != nil && !p.sidecar(container)
}

// sidecar says whether a container is an init container that goes on.
func (p *podState) sidecar(container string) bool {
	c := p.initContainer(container)
	return c != nil && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (p *podState) initContainer(name string) *corev1.Container {
	for i := range p.spec.InitContainers {
		if p.spec.InitContainers[i].Name == name {
			return &p.spec.InitContainers[i]
		}
	}
	return nil
}
