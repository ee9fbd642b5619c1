package cli

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/format"
)

// change is something that a user would tell a friend.
type change struct {
	who  string // the pod, or pod/container
	what string
}

// teller finds the changes worth a line, each of them once.
type teller struct {
	told    map[string]bool   // starts and ends of containers
	begun   map[string]int    // how many starts of a container were told, in whatever words
	ready   map[string]bool   // ids of containers that were ready or past their startup probe
	waiting map[string]string // the last trouble told, by container
	warned  map[string]string // the last warning told, by pod, container and reason
}

func newTeller() *teller {
	return &teller{
		told: make(map[string]bool), begun: make(map[string]int), ready: make(map[string]bool),
		waiting: make(map[string]string), warned: make(map[string]string),
	}
}

// once says whether this is the first time it is asked about what.
func (t *teller) once(what string) bool {
	if t.told[what] {
		return false
	}
	t.told[what] = true
	return true
}

// update returns the changes that an update brings. p holds the new status.
func (t *teller) update(u agent.Update, p *podState, before *corev1.PodStatus) []change {
	switch u.Kind {
	case agent.StatusUpdate:
		return t.status(p, before)
	case agent.EventUpdate:
		return t.event(p, u)
	case agent.GoneUpdate:
		return []change{{p.name, "gone"}}
	case agent.ProgressUpdate:
		key := p.name + "/" + u.Progress.Container
		if t.once(key + " pulls " + u.Progress.Image) {
			text := "pulling image " + u.Progress.Image
			if u.Progress.Total > 0 {
				text += " (" + format.Bytes(u.Progress.Total) + ")"
			}
			return []change{{key, text}}
		}
	}
	return nil
}

func (t *teller) status(p *podState, before *corev1.PodStatus) []change {
	var all []change
	all = append(all, t.stop(p)...)
	for _, c := range containersOf(p.status) {
		all = append(all, t.container(p, &c)...)
	}
	wasReady := before != nil && isReady(before)
	switch ready := isReady(p.status); {
	case isTerminal(p.status):
		if before == nil || !isTerminal(before) {
			all = append(all, change{p.name, podEnd(p)})
		}
	case ready && !wasReady:
		text := "ready"
		if p.status.PodIP != "" {
			text += " at " + p.status.PodIP
		}
		all = append(all, change{p.name, text})
	case wasReady && !ready && !p.stopping():
		all = append(all, change{p.name, "not ready any more"})
	}
	return all
}

func (t *teller) container(p *podState, c *corev1.ContainerStatus) []change {
	who := p.name + "/" + c.Name
	var all []change
	attempt := int(c.RestartCount)
	before := attempt // of the last end
	if c.State.Waiting == nil {
		before--
	}
	for _, e := range []struct {
		attempt int
		end     *corev1.ContainerStateTerminated
	}{{before, c.LastTerminationState.Terminated}, {attempt, c.State.Terminated}} {
		if e.end == nil || !t.once("end of "+who+e.end.ContainerID+e.end.FinishedAt.Format(time.RFC3339Nano)) {
			continue
		}
		if s := e.end.StartedAt.Time; !s.IsZero() && !s.Before(p.since.Truncate(time.Second)) {
			all = append(all, t.start(who, e.attempt)...)
		}
		all = append(all, change{who, ended(e.end).sentence()})
	}
	switch {
	case c.State.Running != nil:
		if t.once(fmt.Sprintf("running %s %d", who, attempt)) {
			t.begun[who] = max(t.begun[who], attempt+1)
			all = append(all, change{who, startText(attempt)})
		}
		t.ready[c.ContainerID] = t.ready[c.ContainerID] || c.Ready
		delete(t.waiting, who)
	case inPostStart(c):
		t.begun[who] = max(t.begun[who], attempt+1)
		if t.once(fmt.Sprintf("postStart %s %d", who, attempt)) {
			all = append(all, change{who, p.stateOf(c).sentence()})
		}
	case c.State.Waiting != nil:
		s := p.stateOf(c)
		// A pull that fails goes back and forth between failing and waiting; the
		// wait has nothing new to say.
		if s.mood == bad && t.waiting[who] != s.sentence() && (c.State.Waiting.Reason != "ImagePullBackOff" || t.waiting[who] == "") {
			t.waiting[who] = s.sentence()
			all = append(all, change{who, s.sentence()})
		}
	}
	return all
}

// start tells that a container runs, if that was not told of this start.
func (t *teller) start(who string, attempt int) []change {
	if t.begun[who] > attempt {
		return nil
	}
	t.begun[who] = attempt + 1
	t.once(fmt.Sprintf("running %s %d", who, attempt))
	return []change{{who, startText(attempt)}}
}

func startText(attempt int) string {
	if attempt > 0 {
		return fmt.Sprintf("running again, restart %d", attempt)
	}
	return "running"
}

// graceOfProbes is how young a container is whose probes may fail without a word.
const graceOfProbes = 10 * time.Second

// young says that an event is a probe's that fails because its container has
// only just started, as nearly every one does.
func (t *teller) young(p *podState, u agent.Update) bool {
	e := u.Event
	if e.Reason != "Unhealthy" || p.status == nil ||
		!strings.HasPrefix(e.Message, "Readiness ") && !strings.HasPrefix(e.Message, "Startup ") {
		return false
	}
	c := statusOf(p.status, e.Container)
	switch {
	case c == nil:
		return false
	case c.State.Running == nil:
		return c.State.Waiting != nil // the event was faster than the status
	}
	return !t.ready[c.ContainerID] && u.Time.Sub(c.State.Running.StartedAt.Time) < graceOfProbes
}

// stop tells that a pod is being stopped.
func (t *teller) stop(p *podState) []change {
	if !p.stopping() || !t.once("stopping "+p.name) {
		return nil
	}
	return []change{{p.name, "stopping"}}
}

// event tells of warnings, unless the container's state says the same, and of
// the begin of a pod's end.
func (t *teller) event(p *podState, u agent.Update) []change {
	e := u.Event
	if endsPod(e) {
		return t.stop(p)
	}
	if e.Type != corev1.EventTypeWarning || t.young(p, u) {
		return nil
	}
	switch e.Reason {
	case "BackOff", "Failed":
		return nil // CrashLoopBackOff, ErrImagePull and the like are states
	}
	who := p.name
	if e.Container != "" {
		who += "/" + e.Container
	}
	key := who + " " + e.Reason
	text := brief(e.Message)
	if t.warned[key] == text {
		return nil
	}
	t.warned[key] = text
	return []change{{who, "warning: " + e.Reason + ": " + text}}
}
