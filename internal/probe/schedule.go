package probe

import (
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// minPeriod and minTimeout keep a mistaken configuration from eating a core.
const (
	minPeriod  = 10 * time.Millisecond
	minTimeout = time.Millisecond
)

// Timing is when a probe's checks come.
type Timing struct {
	InitialDelay time.Duration // from the container's start to the first check
	Period       time.Duration // from check to check
	Timeout      time.Duration // of one check
}

// SpecTiming is the timing that the API's fields ask for.
func SpecTiming(spec *corev1.Probe) Timing {
	return Timing{
		InitialDelay: time.Duration(spec.InitialDelaySeconds) * time.Second,
		Period:       time.Duration(spec.PeriodSeconds) * time.Second,
		Timeout:      time.Duration(spec.TimeoutSeconds) * time.Second,
	}.bounded()
}

// bounded fills in the API's defaults and raises what is too small.
func (t Timing) bounded() Timing {
	if t.Period <= 0 {
		t.Period = 10 * time.Second
	}
	if t.Timeout <= 0 {
		t.Timeout = time.Second
	}
	t.InitialDelay = max(0, t.InitialDelay)
	t.Period = max(minPeriod, t.Period)
	t.Timeout = max(minTimeout, t.Timeout)
	return t
}

// Schedule is the grid of a probe's ticks: First, and every Period after it.
type Schedule struct {
	First  time.Time
	Period time.Duration
}

// Next returns the tick that follows a check made at last. Where ticks have
// passed since, they are made up by one check now; the grid stays as it is.
func (s Schedule) Next(last, now time.Time) time.Time {
	tick := s.First
	if since := last.Sub(s.First); since >= 0 {
		tick = s.First.Add((since/s.Period + 1) * s.Period)
	}
	if tick.Before(now) {
		return now
	}
	return tick
}

// earlyWait is the wait before the first early check; it doubles with each.
const earlyWait = 25 * time.Millisecond

// Early returns when a container that is on its way up is asked before its next
// tick: 25 ms after its first check, then after twice that, and so on within the
// first period. n counts the early checks made. A server that takes 30 ms to
// come up is else found out a whole period later.
func (s Schedule) Early(last time.Time, n int) (at time.Time, ok bool) {
	const most = 10 // more would overflow no sensible period
	if n >= most {
		return time.Time{}, false
	}
	wait := earlyWait << n
	at = last.Add(wait)
	// One so close before the tick that it would only double it is left out.
	return at, at.Add(wait / 2).Before(s.First.Add(s.Period))
}

// first is when the first check of a probe comes. The container started at
// started by the wall clock, which may have jumped since: the wait is never
// longer than the initial delay. spread delays it further.
func first(now, started time.Time, delay, spread time.Duration) time.Time {
	wait := delay - now.Sub(started)
	if started.IsZero() {
		wait = 0
	}
	return now.Add(min(max(0, wait), delay) + spread)
}

// jitter is a wait below limit, always the same for the same key.
func jitter(key lifecycle.ProbeKey, limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(key.ContainerID))
	_, _ = h.Write([]byte(key.Kind))
	return time.Duration(h.Sum64() % uint64(limit))
}
