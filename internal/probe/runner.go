package probe

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// The lanes of Manager.lanes.
const (
	networkLane = iota
	execLane
)

// How long a check counts against those allowed at once. A connection on the
// same machine takes less than a millisecond, a command some ten.
const (
	networkSlow = 5 * time.Millisecond
	execSlow    = 50 * time.Millisecond
)

// runner is one probe that is wanted, or whose last check is still alive.
// Manager.mu guards it.
type runner struct {
	pod    *corev1.Pod
	want   lifecycle.Probe
	timing Timing
	grid   Schedule
	check  checker // immutable; replaced when the target moves
	lane   int
	tally  Tally
	ring   ring

	rising bool      // asked early until it succeeds: its container is new
	asked  int       // how many early checks were planned
	early  bool      // the next check is an early one
	due    time.Time // next check
	place  int       // in Manager.due; -1: not in it
	slow   bool      // the last check was
	flight *flight   // the check that is alive; nil: none
	gone   bool      // no longer wanted

	// successor is a newer probe of the same key that begins when flight ends.
	successor *runner
}

// flight is one check that is alive.
type flight struct {
	lane   *lane
	began  time.Time
	early  bool
	cancel context.CancelFunc
	// ended: its place in the lane is free. counted: it has its result, at the
	// time-out, though it hasn't ended yet.
	ended, counted bool
}

// aim makes the checker for what the runner wants now.
func (r *runner) aim(m *Manager) {
	r.check = m.checkers.of(containerNamed(r.pod, r.want.Container), &r.want)
	r.lane = networkLane
	if _, ok := r.check.(*execCheck); ok {
		r.lane = execLane
	}
}
