package nodeapi

import (
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// errNeeded says that an agent stays because somebody needs it.
var errNeeded = errors.New("a pod lives, or a berth run follows one")

// leaveIdle says whether nobody needs the agent, and sees to it that this stays so:
// who asks for pods from then on has to ask the next agent.
func (s *Server) leaveIdle() bool {
	if !s.coming.shut() {
		return false
	}
	if s.runs.follows() || slices.ContainsFunc(s.cfg.Agent.Pods(), func(p *corev1.Pod) bool {
		return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
	}) {
		s.coming.open()
		return false
	}
	return true
}

// coming counts the requests for pods that are under way. The zero value is ready to
// use, by several goroutines.
type coming struct {
	mu     sync.Mutex
	n      int
	closed bool // no more are taken
}

// begin notes a request; false: it is not taken.
func (c *coming) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.n++
	return true
}

func (c *coming) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
}

// shut takes no more requests, unless one is under way.
func (c *coming) shut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n > 0 {
		return false
	}
	c.closed = true
	return true
}

func (c *coming) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = false
}
