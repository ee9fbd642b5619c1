package lifecycle

import (
	"maps"
	"time"
)

// Apply folds one event into the history and returns the new one. It changes
// nothing in h: what differs is copied.
func (h History) Apply(e Event) History {
	switch e := e.(type) {
	case ActionStarted:
		return h.actionStarted(e)
	case ActionEnded:
		return h.actionEnded(e)
	case Looked:
		return h.looked(e)
	case Probed:
		return h.probed(e)
	case Decided:
		return h.decided(e)
	case SourcesChanged:
		return h.sourcesChanged()
	case ClockStepped:
		return h.shifted(e.By)
	}
	return h
}

// with returns a history in which the named container's part is c.
func (h History) with(name string, c ContainerHistory) History {
	m := make(map[string]ContainerHistory, len(h.Containers)+1)
	maps.Copy(m, h.Containers)
	m[name] = c
	h.Containers = m
	return h
}

func (h History) actionStarted(e ActionStarted) History {
	a := e.Action
	if a.Kind != StartContainer {
		return h
	}
	c := h.Containers[a.Container]
	if c.Attempts == a.Attempt+1 && c.StartedIn == a.SandboxID && c.Exit == nil && (c.Starting || c.ID != "") {
		// Asked again: the same start, or that of a container already made.
		if c.Starting {
			return h
		}
		c.Starting = true
		return h.with(a.Container, c)
	}
	if c.Exit != nil {
		c.LastExit = c.Exit
	}
	c.Attempts = a.Attempt + 1
	c.Starting = true
	c.StartedIn = a.SandboxID
	c.Round = h.RestartAll
	c.ID, c.Seen, c.MadeAt, c.OnlyMade, c.Stepped = "", false, time.Time{}, false, 0
	c.Exit, c.Stop, c.StopFailure, c.Probes = nil, nil, nil, nil
	c.PostStart, c.PreStop = HookHistory{}, HookHistory{}
	return h.with(a.Container, c)
}

func (h History) actionEnded(e ActionEnded) History {
	a := e.Action
	switch a.Kind {
	case PrepareVolumes:
		if e.Err == nil && !e.Canceled {
			h.VolumesFor = a.Attempt + 1
		}
		return h.podFailure(e)
	case CreateSandbox:
		if e.Err == nil && !e.Canceled {
			h.SandboxAttempts = max(h.SandboxAttempts, a.Attempt+1)
			h.SandboxMadeAt = e.At
		}
		return h.podFailure(e)
	case RemovePod:
		if e.Err == nil && !e.Canceled {
			h.VolumesFor = 0
		}
		return h.podFailure(e)
	case StopSandbox:
		if e.Err == nil && !e.Canceled {
			h.StoppedSandbox = a.SandboxID
		}
		return h.podFailure(e)
	case RemoveSandbox:
		return h.podFailure(e)
	case PullImage:
		c := h.Containers[a.Container]
		if e.Canceled {
			return h
		}
		if c.Image != a.Image {
			if c.Image != "" {
				c.Backoff, c.Start = BackoffHistory{}, nil // the other image's
			}
			c.Image, c.Pull, c.PulledFor = a.Image, nil, 0
		}
		switch {
		case e.Err != nil:
			c.Pull = nextFailure(c.Pull, *e.Err, e.At, pullBackoff)
		default:
			c.Pull = nil
			c.PulledFor = a.Attempt + 1
			c.ImageRef = e.ImageRef
		}
		return h.with(a.Container, c)
	case StartContainer:
		return h.startEnded(e)
	case RunPostStart:
		c := h.Containers[a.Container]
		if c.ID != a.ContainerID || e.Canceled {
			return h
		}
		c.PostStart = hookEnded(e.Err)
		return h.with(a.Container, c)
	case RunPreStop:
		c := h.Containers[a.Container]
		if c.ID != a.ContainerID {
			return h
		}
		// A hook that was cut off is over too: it has had its time.
		c.PreStop = hookEnded(e.Err)
		return h.with(a.Container, c)
	case StopContainer, RemoveContainer:
		c, ok := h.Containers[a.Container]
		switch {
		case !ok || e.Canceled:
			return h
		case e.Err != nil:
			c.StopFailure = nextFailure(c.StopFailure, *e.Err, e.At, retryBackoff)
		case c.StopFailure == nil:
			return h
		default:
			c.StopFailure = nil
		}
		return h.with(a.Container, c)
	}
	return h
}

func hookEnded(err *Failed) HookHistory {
	if err == nil {
		return HookHistory{Done: true}
	}
	return HookHistory{Done: true, Failed: true, Message: err.Message}
}

func (h History) startEnded(e ActionEnded) History {
	a := e.Action
	c := h.Containers[a.Container]
	if c.Attempts != a.Attempt+1 {
		return h
	}
	c.Starting = false
	if e.ContainerID != "" {
		c.ID, c.MadeAt, c.OnlyMade = e.ContainerID, e.At, false
	}
	if e.Err == nil && e.ContainerID != "" {
		c.RestartCount = max(c.RestartCount, a.Attempt)
	}
	if e.Err == nil && !e.Canceled {
		c.Start = nil
		return h.with(a.Container, c)
	}
	if !e.Canceled {
		b := retryBackoff
		if e.ContainerID != "" && c.Exit != nil {
			b = noBackoff // its exit carries the back-off
		}
		c.Start = nextFailure(c.Start, *e.Err, e.At, b)
		if e.Err.Reason != ReasonCreateContainerConfigError {
			c.PulledFor = 0 // the image may be what was wrong
		}
	}
	if e.ContainerID == "" && c.ID == "" {
		c = c.undoStart()
	}
	return h.with(a.Container, c)
}

// undoStart forgets a start of which nothing ran.
func (c ContainerHistory) undoStart() ContainerHistory {
	c.Attempts--
	c.Starting = false
	c.StartedIn = ""
	c.ID, c.Seen, c.MadeAt, c.OnlyMade, c.Stop = "", false, time.Time{}, false, nil
	if c.LastExit != nil && c.LastExit.Attempt == c.Attempts-1 {
		c.Exit, c.LastExit = c.LastExit, nil
		c.ID, c.Seen = c.Exit.ID, true
		c.StartedIn, c.Round = c.Exit.In, c.Exit.Round
	}
	return c
}

// podFailure keeps, or clears, the failures of an action of the whole pod.
func (h History) podFailure(e ActionEnded) History {
	if e.Canceled {
		return h
	}
	k := e.Action.Kind
	old, had := h.Failures[k]
	if e.Err == nil && !had {
		return h
	}
	m := make(map[ActionKind]FailureHistory, len(h.Failures)+1)
	maps.Copy(m, h.Failures)
	if e.Err == nil {
		delete(m, k)
	} else {
		var prev *FailureHistory
		if had {
			prev = &old
		}
		m[k] = *nextFailure(prev, *e.Err, e.At, retryBackoff)
	}
	h.Failures = m
	return h
}

func (h History) probed(e Probed) History {
	for _, name := range sortedKeys(h.Containers) {
		c := h.Containers[name]
		if c.ID != e.Key.ContainerID || c.Exit != nil {
			continue
		}
		if c.Probes[e.Key.Kind].Outcome == e.Outcome {
			return h
		}
		m := make(map[ProbeKind]ProbeHistory, len(c.Probes)+1)
		maps.Copy(m, c.Probes)
		m[e.Key.Kind] = ProbeHistory{Outcome: e.Outcome, Message: e.Message, Since: e.At}
		c.Probes = m
		return h.with(name, c)
	}
	return h
}

// decided remembers what a decision reported, and stamps what it began.
func (h History) decided(e Decided) History {
	status := e.Decision.Status
	h.Status = &status
	if h.Began.IsZero() {
		h.Began = e.At
	}
	return h.begun(e.Decision.Begin, e.At)
}

// begun stamps what a decision began.
func (h History) begun(b Begin, at time.Time) History {
	if b.End != nil {
		h.Termination = h.Termination.begun(*b.End, at)
	}
	for _, s := range b.Stops {
		c := h.Containers[s.Container]
		if c.ID != s.ID {
			continue
		}
		st := StopHistory{Since: at, Deadline: at.Add(s.Grace), Why: s.Why, Restart: s.Restart}
		if c.Stop != nil {
			st = *c.Stop
		}
		if s.Signal && st.SignalAt.IsZero() {
			st.SignalAt = at
		}
		c.Stop = &st
		h = h.with(s.Container, c)
	}
	if b.RestartAll {
		h.RestartAll++
	}
	return h
}

// begun is the termination after one more wish to end the pod. A second wish
// can only bring the deadline nearer.
func (t *Termination) begun(e End, at time.Time) *Termination {
	if t == nil {
		return &Termination{At: at, Grace: e.Grace, Deadline: at.Add(e.Grace), Reason: e.Reason,
			Message: e.Message, Failed: e.Failed, Conditions: e.Conditions}
	}
	next := *t
	next.Grace = min(t.Grace, e.Grace)
	if d := at.Add(e.Grace); d.Before(t.Deadline) {
		next.Deadline = d
	}
	return &next
}

// sourcesChanged lifts the waits of actions that may have lacked something.
func (h History) sourcesChanged() History {
	for _, name := range sortedKeys(h.Containers) {
		c := h.Containers[name]
		if c.Pull == nil && c.Start == nil {
			continue
		}
		if c.Pull != nil {
			f := *c.Pull
			f.Until = f.At
			c.Pull = &f
		}
		if c.Start != nil {
			f := *c.Start
			f.Until = f.At
			c.Start = &f
		}
		h = h.with(name, c)
	}
	if len(h.Failures) > 0 {
		m := make(map[ActionKind]FailureHistory, len(h.Failures))
		for k, f := range h.Failures {
			f.Until = f.At
			m[k] = f
		}
		h.Failures = m
	}
	return h
}
