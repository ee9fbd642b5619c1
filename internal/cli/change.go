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
	told    map[string]bool     // starts and ends of containers
	begun   map[string]int      // how many starts of a container were told, in whatever words
	waiting map[string]string   // the last trouble told, by container
	said    map[string]string   // the last text of somebody else's that was told, by container
	warned  map[string]*repeats // by pod or container, and what it is about
}

func newTeller() *teller {
	return &teller{
		told: make(map[string]bool), begun: make(map[string]int), waiting: make(map[string]string),
		said: make(map[string]string), warned: make(map[string]*repeats),
	}
}

// say is a state as a sentence. The text in it, which may be long, is left out for
// as long as it is what was told last.
func (t *teller) say(who string, s state) string {
	if s.text != "" && t.said[who] == s.text {
		return s.short()
	}
	if s.text != "" {
		t.said[who] = s.text
	}
	return s.sentence()
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
	if before == nil && p.joined {
		if all = t.joined(p); !isTerminal(p.status) {
			return all
		}
	}
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
		if e.end == nil || !t.once(endKey(who, e.end)) {
			continue
		}
		if s := e.end.StartedAt.Time; !s.IsZero() && !s.Before(p.since.Truncate(time.Second)) {
			all = append(all, t.start(who, e.attempt)...)
		}
		all = append(all, change{who, t.say(who, p.endOf(c.Name, e.end))})
	}
	switch {
	case c.State.Running != nil:
		if t.once(fmt.Sprintf("running %s %d", who, attempt)) {
			t.begun[who] = max(t.begun[who], attempt+1)
			all = append(all, change{who, startText(attempt)})
		}
		if c.Ready {
			delete(t.warned, who+" Unhealthy Readiness") // when it fails again, that is news
		}
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
			all = append(all, change{who, t.say(who, s)})
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

// joined tells how a pod is that was there before this run asked for it, and takes
// what it went through until then for told.
func (t *teller) joined(p *podState) []change {
	_, _, restarts := counts(p.status)
	word, _ := podWord(p)
	if p.status.PodIP != "" && p.ready() {
		word += " at " + p.status.PodIP
	}
	about := word + " already; started " + format.Duration(p.age(p.since)) + " ago"
	if restarts > 0 {
		about += ", " + count(int(restarts), "restart")
	}
	all := []change{{p.name, about}}
	if p.stopping() {
		t.once("stopping " + p.name)
	}
	for _, c := range containersOf(p.status) {
		who := p.name + "/" + c.Name
		last := c.LastTerminationState.Terminated
		if last != nil {
			t.once(endKey(who, last))
		}
		if c.State.Waiting == nil || inPostStart(&c) || last != nil {
			t.once(fmt.Sprintf("running %s %d", who, c.RestartCount))
			t.once(fmt.Sprintf("postStart %s %d", who, c.RestartCount))
			t.begun[who] = max(t.begun[who], int(c.RestartCount)+1)
		}
		if isTerminal(p.status) {
			continue // how its containers ended is told next
		}
		if end := c.State.Terminated; end != nil {
			t.once(endKey(who, end))
		}
		s := p.stateOf(&c)
		if s.mood == bad {
			t.waiting[who] = s.sentence()
		}
		if text := t.say(who, s); s.mood != calm || c.RestartCount > 0 {
			if last != nil && c.State.Running != nil {
				text += "; before that " + t.say(who, p.endOf(c.Name, last))
			}
			all = append(all, change{who, text})
		}
	}
	if isTerminal(p.status) {
		return nil
	}
	return all
}

// endKey names an end of a container.
func endKey(who string, end *corev1.ContainerStateTerminated) string {
	return "end of " + who + end.ContainerID + end.FinishedAt.Format(time.RFC3339Nano)
}

// stop tells that a pod is being stopped.
func (t *teller) stop(p *podState) []change {
	if !p.stopping() || !t.once("stopping "+p.name) {
		return nil
	}
	return []change{{p.name, "stopping"}}
}

// event tells of warnings, unless the container's state says the same, of what
// containers are killed for, and of the begin of a pod's end.
func (t *teller) event(p *podState, u agent.Update) []change {
	e := u.Event
	if endsPod(e) {
		return t.stop(p)
	}
	if e.Reason == "Killing" && !p.stopping() {
		who := p.name + "/" + e.Container
		return []change{{who, t.say(who, p.kills.state("killing", e.Container))}}
	}
	if e.Type != corev1.EventTypeWarning {
		return nil
	}
	about := e.Reason
	switch e.Reason {
	case "BackOff", "Failed":
		return nil // CrashLoopBackOff, ErrImagePull and the like are states
	case "Unhealthy":
		if p.stopping() {
			return nil // it is meant to be
		}
		kind, _, _ := strings.Cut(e.Message, " ")
		about += " " + kind
	}
	who := p.name
	if e.Container != "" {
		who += "/" + e.Container
	}
	key := who + " " + about
	if t.warned[key] == nil {
		t.warned[key] = &repeats{}
	}
	text := brief(e.Message)
	switch times, tell := t.warned[key].add(text, u.Time); {
	case !tell:
		return nil
	case times != "":
		return []change{{who, "warning: " + e.Reason + ", " + times + ": " + cut(text, repeatedCells)}}
	}
	return []change{{who, t.say(who, state{word: "warning: " + e.Reason, detail: text, text: text})}}
}

// repeatedCells is how much of a warning is told once more, in cells of a
// terminal: enough to know it by.
const repeatedCells = 60
