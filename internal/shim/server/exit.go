package server

import (
	"time"

	"github.com/berth-run/berth/internal/shim"
)

// drainWait is how long the end of a container waits for the end of its output.
// With a PID namespace of its own nothing is left that could write; else a
// process that left the container's cgroup might.
const drainWait = 2 * time.Second

// ended is called when the container's first process has ended: it kills the
// others, waits for the output, and records and reports the exit. The process may
// end before the container is wholly made: its end comes after that.
func (c *container) ended() {
	<-c.made
	st := c.state()
	if !st.PrivatePIDs {
		if err := killCgroup(st.CgroupPaths); err != nil {
			c.srv.log.Warn("cannot kill what a container left", "id", c.id, "err", err)
		}
	}
	if st.Phase == starting {
		c.awaitStart() // that it started comes first
	}
	until := time.Now().Add(drainWait)
	for _, s := range c.streams {
		if !s.drained(time.Until(until)) {
			s.flush()
			c.srv.log.Warn("output still open after the container ended", "id", c.id, "stream", s.name)
		}
	}
	p := c.proc
	exit := exitState{Code: p.status.code(), Signal: p.status.signal(), At: p.at, Known: p.status.known}
	if n, err := oomKills(st.CgroupPaths); err == nil && n > 0 {
		exit.OOMKilled = !exit.Known || exit.Code != 0
	}
	c.recordExit(exit)
}

// recordExit saves the exit and reports it. If it can't be saved it is reported
// all the same; a later shim would report it as unknown.
func (c *container) recordExit(exit exitState) {
	c.note(func(st *state) {
		st.Exit = &exit
		if st.Phase != deleting {
			st.Phase = exited
		}
	})
	c.oom.stop(c.srv.poll)
	c.to.close()
	c.closeStdin()
	c.srv.events.publish(shim.Event{Kind: shim.ContainerExited, ID: c.id, At: exit.At, Exit: exit.exit()})
	close(c.exited)
	c.srv.log.Debug("container exited", "id", c.id, "code", exit.Code, "signal", exit.Signal, "known", exit.Known, "oom", exit.OOMKilled)
	c.srv.settled()
}
