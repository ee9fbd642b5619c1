package lifecycle

import "time"

// shifted moves every time in the history that a wait counts from by d. The
// times in the status stay: they were reported.
func (h History) shifted(d time.Duration) History {
	for _, name := range sortedKeys(h.Containers) {
		c := h.Containers[name]
		move(d, &c.MadeAt, &c.Backoff.Since)
		if c.ID != "" && c.Exit == nil {
			c.Stepped += d
		}
		c.Exit = shiftExit(c.Exit, d)
		c.LastExit = shiftExit(c.LastExit, d)
		c.Pull = shiftFailure(c.Pull, d)
		c.Start = shiftFailure(c.Start, d)
		c.StopFailure = shiftFailure(c.StopFailure, d)
		if c.Stop != nil {
			s := *c.Stop
			move(d, &s.Since, &s.Deadline, &s.SignalAt)
			c.Stop = &s
		}
		if c.Probes != nil {
			m := make(map[ProbeKind]ProbeHistory, len(c.Probes))
			for k, p := range c.Probes {
				move(d, &p.Since)
				m[k] = p
			}
			c.Probes = m
		}
		h = h.with(name, c)
	}
	if h.Failures != nil {
		m := make(map[ActionKind]FailureHistory, len(h.Failures))
		for k, f := range h.Failures {
			m[k] = *shiftFailure(&f, d)
		}
		h.Failures = m
	}
	if h.Termination != nil {
		t := *h.Termination
		move(d, &t.At, &t.Deadline)
		h.Termination = &t
	}
	move(d, &h.Began, &h.SandboxMadeAt)
	return h
}

// mostAhead is how far the history may be ahead of a look: a look may have been
// begun before what it is folded after. More means that the clock was set back
// while no agent ran, and that waits would last as long as that.
const mostAhead = time.Minute

// newest is the latest time by the agent's own clock.
func (h History) newest() time.Time {
	latest := h.Began
	add := func(times ...time.Time) {
		for _, t := range times {
			if t.After(latest) {
				latest = t
			}
		}
	}
	add(h.SandboxMadeAt)
	for _, c := range h.Containers {
		add(c.MadeAt, c.Backoff.Since)
		if c.Stop != nil {
			add(c.Stop.Since, c.Stop.SignalAt)
		}
		for _, f := range []*FailureHistory{c.Pull, c.Start, c.StopFailure} {
			if f != nil {
				add(f.At)
			}
		}
	}
	for _, f := range h.Failures {
		add(f.At)
	}
	if h.Termination != nil {
		add(h.Termination.At)
	}
	return latest
}

func move(d time.Duration, times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
}

func shiftExit(x *Exit, d time.Duration) *Exit {
	if x == nil {
		return nil
	}
	y := *x
	move(d, &y.StartedAt, &y.FinishedAt)
	return &y
}

func shiftFailure(f *FailureHistory, d time.Duration) *FailureHistory {
	if f == nil {
		return nil
	}
	g := *f
	move(d, &g.At, &g.Until)
	return &g
}
