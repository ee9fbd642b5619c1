package cli

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// mood says how good a state is.
type mood int

const (
	calm    mood = iota // as it should be
	waiting             // on its way
	bad                 // somebody should look
)

// state is a container's state in words.
type state struct {
	word   string // one or two words: running, ErrImagePull, exit 3
	detail string // may be empty
	text   string // the part of detail that somebody else wrote, and may be long; may be empty
	mood   mood
	// waitsForOthers says that the container is not what is waited for.
	waitsForOthers bool
}

func (s state) sentence() string {
	if s.detail == "" {
		return s.word
	}
	return s.word + ": " + s.detail
}

// short is the sentence without the text: for those who know that.
func (s state) short() string {
	switch {
	case s.text == "":
		return s.sentence()
	case s.detail == s.text:
		return s.word
	}
	return s.word + ": " + strings.Replace(s.detail, ": "+s.text, "", 1)
}

func (p *podState) stateOf(c *corev1.ContainerStatus) state {
	switch {
	case c.State.Running != nil && p.isInit(c.Name):
		return state{word: "running", mood: waiting}
	case c.State.Running != nil && c.Ready:
		return state{word: "running"}
	case c.State.Running != nil && c.Started != nil && !*c.Started:
		return state{word: "starting", detail: "its startup probe has not succeeded yet", mood: waiting}
	case c.State.Running != nil:
		return state{word: "not ready", detail: "it runs, and its readiness probe has not succeeded", mood: waiting}
	case c.State.Terminated != nil:
		return p.endOf(c.Name, c.State.Terminated)
	case c.State.Waiting != nil:
		w := c.State.Waiting
		s := state{word: w.Reason, detail: brief(w.Message), mood: bad}
		s.text = s.detail
		switch held, _, _ := strings.Cut(s.detail, ": "); {
		case inPostStart(c):
			return state{word: "postStart hook running", mood: waiting}
		case (w.Reason == "ContainerCreating" || w.Reason == "PodInitializing") && isReason(held):
			// The pod as a whole does not come up.
			text := brief(strings.TrimPrefix(s.detail, held+": "))
			return state{word: "creating: " + held, detail: text, text: text, mood: waiting}
		}
		switch w.Reason {
		case "", "ContainerCreating":
			s.word, s.mood = "creating", waiting
		case "PodInitializing":
			s.word, s.mood, s.waitsForOthers = "waits for init", waiting, true
		case "CrashLoopBackOff":
			// The usual message names the pod once more, and not what happened.
			if end := c.LastTerminationState.Terminated; end != nil {
				wait, _, _ := strings.Cut(s.detail, " restarting ")
				was := p.endOf(c.Name, end)
				s.detail, s.text = was.sentence()+" ("+wait+")", was.text
			}
		}
		return s
	}
	return state{word: "creating", mood: waiting}
}

// inPostStart says that a container has started and its postStart hook has not
// ended: the API calls that waiting.
func inPostStart(c *corev1.ContainerStatus) bool {
	return c.State.Waiting != nil && c.State.Waiting.Message == "the postStart hook is running"
}

// isReason says whether a word is one like FailedMount.
func isReason(word string) bool {
	return word != "" && word[0] >= 'A' && word[0] <= 'Z' && !strings.ContainsAny(word, " /.\"")
}

// ended says how a container ended.
func ended(t *corev1.ContainerStateTerminated) state {
	s := state{mood: bad, detail: brief(t.Message)}
	s.text = s.detail
	switch {
	case t.ExitCode == 0 && t.Signal == 0:
		return state{word: "completed"}
	case t.Reason == "OOMKilled":
		s.word = "OOMKilled"
	case !known(t):
		s.word = "ended"
		if s.detail == "" {
			s.detail = "how is not known"
		}
	case t.Reason != "Error" && t.Reason != "":
		s.word = fmt.Sprintf("%s (exit code %d)", t.Reason, t.ExitCode)
	case t.Signal > 0:
		s.word = "killed by " + signalName(int(t.Signal))
	case t.ExitCode > 128 && t.ExitCode < 128+65:
		s.word = fmt.Sprintf("exit code %d", t.ExitCode)
		if name := signalName(int(t.ExitCode) - 128); strings.HasPrefix(name, "SIG") {
			s.word += " (" + name + ")"
		}
	default:
		s.word = fmt.Sprintf("exit code %d", t.ExitCode)
	}
	return s
}

func signalName(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}

// podWord is a pod's state in a word or two.
func podWord(p *podState) (string, mood) {
	if p.gone {
		return "gone", calm
	}
	if p.stopping() {
		return "stopping", waiting
	}
	if p.status == nil {
		return "waiting", waiting
	}
	s := p.status
	switch s.Phase {
	case corev1.PodSucceeded:
		return "succeeded", calm
	case corev1.PodFailed:
		if s.Reason != "" {
			return "failed: " + s.Reason, bad
		}
		return "failed", bad
	case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
	}
	word, how := "starting", waiting
	if isReady(s) {
		word, how = "ready", calm
	} else if s.Phase == corev1.PodRunning {
		word = "running"
	}
	for _, c := range containersOf(s) {
		cs := p.stateOf(&c)
		if c.State.Terminated != nil && cs.mood == calm {
			continue
		}
		if c.State.Running != nil && p.isInit(c.Name) {
			cs.word = "init: " + c.Name
		}
		if cs.mood > how || cs.mood == how && how == waiting && !cs.waitsForOthers {
			word, how = cs.word, cs.mood
		}
	}
	return word, how
}

// counts are the numbers of a pod's row.
func counts(s *corev1.PodStatus) (ready, total int, restarts int32) {
	if s == nil {
		return 0, 0, 0
	}
	for _, c := range s.ContainerStatuses {
		total++
		if c.Ready {
			ready++
		}
	}
	for _, c := range containersOf(s) {
		restarts += c.RestartCount
	}
	return ready, total, restarts
}

// oneLine is the first line of a text, without what would disturb a terminal.
func oneLine(text string) string {
	text = strings.TrimSpace(text)
	first, _, more := strings.Cut(text, "\n")
	first = printable(strings.TrimSpace(first))
	if more {
		first += " …"
	}
	return first
}
