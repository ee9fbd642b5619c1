package lifecycle

import "time"

// looked folds what was observed: containers that came to be, that ended, that
// vanished, and starts that were interrupted.
func (h History) looked(e Looked) History {
	if ahead := h.newest().Sub(e.Observed.At); ahead > mostAhead {
		h = h.shifted(-ahead)
	}
	seen := make(map[string]bool, len(e.Observed.Containers))
	for _, o := range sortedContainers(e.Observed.Containers) {
		seen[o.ID] = true
		h = h.sawContainer(o, e.Observed.At)
	}
	for _, s := range e.Observed.Sandboxes {
		h.SandboxAttempts = max(h.SandboxAttempts, s.Attempt+1)
	}
	for _, name := range sortedKeys(h.Containers) {
		c := h.Containers[name]
		switch {
		case c.Starting && !starting(e.UnderWay, name) && seen[c.ID]:
			c.Starting = false // made, and not run: the same attempt goes on
			h = h.with(name, c)
		case c.Starting && !starting(e.UnderWay, name):
			h = h.with(name, c.interrupted(e.Observed))
		case c.ID != "" && c.Exit == nil && !seen[c.ID] && !starting(e.UnderWay, name) &&
			(c.Seen || e.Observed.At.After(c.MadeAt)):
			if c.OnlyMade {
				h = h.with(name, c.undoStart())
				continue
			}
			// Its start is unknown too, so that the back-off counts it as a crash.
			h = h.with(name, c.vanished(e.Observed.At))
		}
	}
	return h
}

// vanished is the end of a container that may have run and is gone.
func (c ContainerHistory) vanished(at time.Time) ContainerHistory {
	return c.ended(Exit{
		ID: c.ID, Attempt: c.Attempts - 1, Unknown: true,
		Reason:     ReasonContainerStatusUnknown,
		Message:    "the container is gone from the runtime, and how it ended is not known",
		FinishedAt: at,
	}, at)
}

// interrupted settles a start that the agent began before it died, and that
// made no container that can be seen.
func (c ContainerHistory) interrupted(o Observed) ContainerHistory {
	if c.ID != "" && !c.OnlyMade {
		c.Starting = false
		return c.vanished(o.At) // it was seen to run
	}
	for _, s := range o.Sandboxes {
		if s.ID == c.StartedIn {
			// The runtime keeps a container that runs: none kept, none ran.
			return c.undoStart()
		}
	}
	c.Starting = false
	return c.ended(Exit{
		Attempt: c.Attempts - 1, Unknown: true,
		Reason:     ReasonContainerStatusUnknown,
		Message:    "the container may have run: its start was begun, and its sandbox was lost before the start was seen to end",
		FinishedAt: o.At,
	}, o.At)
}

// ended folds the end of the newest attempt, as it was seen at at.
func (c ContainerHistory) ended(x Exit, at time.Time) ContainerHistory {
	x.In, x.Round = c.StartedIn, c.Round
	x.Restart = c.Stop != nil && c.Stop.Restart
	c.Exit = &x
	if c.Start != nil {
		f := *c.Start
		f.Until = f.At // the exit carries the back-off
		c.Start = &f
	}
	return c.crashed(x, at)
}

func (h History) sawContainer(o Container, at time.Time) History {
	c, known := h.Containers[o.Name]
	if o.Attempt < c.Attempts-1 {
		return h // an older attempt: its exit was folded, or is of no interest
	}
	onlyMade := o.State == ContainerCreated && c.Exit == nil && (c.ID != o.ID || c.MadeAt.IsZero() || !at.Before(c.MadeAt))
	if known && c.ID == o.ID && c.Seen && c.OnlyMade == onlyMade && (c.Exit != nil || o.State != ContainerExited) {
		return h
	}
	if o.Attempt > c.Attempts-1 {
		// The history was lost or is behind: believe the runtime.
		if c.Exit != nil {
			c.LastExit = c.Exit
		}
		c = ContainerHistory{
			Attempts: o.Attempt + 1, LastExit: c.LastExit, Backoff: c.Backoff,
			StartedIn: o.SandboxID, Round: h.RestartAll, Start: c.Start,
		}
	}
	c.ID = o.ID
	c.Seen = true
	c.OnlyMade = onlyMade
	if c.MadeAt.IsZero() {
		c.MadeAt = at
	}
	if c.StartedIn == "" {
		c.StartedIn = o.SandboxID
	}
	if o.State != ContainerCreated {
		c.RestartCount = max(c.RestartCount, o.Attempt)
	}
	if o.State != ContainerCreated || c.Exit != nil {
		c.Starting = false
	}
	if o.State == ContainerExited && c.Exit == nil {
		x := exitOf(o)
		c = c.ended(x, at)
	}
	return h.with(o.Name, c)
}

func exitOf(o Container) Exit {
	x := Exit{
		ID: o.ID, Attempt: o.Attempt, Code: o.ExitCode, Unknown: o.ExitUnknown, Signal: o.Signal,
		Reason: o.Reason, Message: o.Message, StartedAt: o.StartedAt, FinishedAt: o.FinishedAt,
	}
	if x.Reason == "" {
		switch {
		case x.Unknown:
			x.Reason = ReasonContainerStatusUnknown
		case x.Code == 0:
			x.Reason = ReasonCompleted
		default:
			x.Reason = ReasonError
		}
	}
	return x
}
