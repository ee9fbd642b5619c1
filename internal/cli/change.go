package cli

import (
	"fmt"
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
	told    map[string]bool   // starts and ends of containers, by id
	waiting map[string]string // the last trouble told, by container
	warned  map[string]string // the last warning told, by pod, container and reason
}

func newTeller() *teller {
	return &teller{told: make(map[string]bool), waiting: make(map[string]string), warned: make(map[string]string)}
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
		return t.event(p, u.Event)
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
	case wasReady && !ready:
		all = append(all, change{p.name, "not ready any more"})
	}
	return all
}

func (t *teller) container(p *podState, c *corev1.ContainerStatus) []change {
	who := p.name + "/" + c.Name
	var all []change
	// The end of the attempt before, and then how it is now.
	for _, end := range []*corev1.ContainerStateTerminated{c.LastTerminationState.Terminated, c.State.Terminated} {
		if end == nil || !t.once("end of "+who+end.ContainerID+end.FinishedAt.Format(time.RFC3339Nano)) {
			continue
		}
		all = append(all, change{who, ended(end).sentence()})
	}
	switch {
	case c.State.Running != nil:
		if t.once("start of " + c.ContainerID) {
			text := "running"
			if c.RestartCount > 0 {
				text = fmt.Sprintf("running again, restart %d", c.RestartCount)
			}
			all = append(all, change{who, text})
		}
		delete(t.waiting, who)
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

// event tells of warnings, unless the container's state says the same.
func (t *teller) event(p *podState, e *agent.Event) []change {
	if e.Type != corev1.EventTypeWarning {
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
	if t.warned[key] == e.Message {
		return nil
	}
	t.warned[key] = e.Message
	return []change{{who, "warning: " + e.Reason + ": " + oneLine(e.Message)}}
}
