package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
)

// container is one container, from Create to Delete.
type container struct {
	srv *Server
	id  string
	dir string // RUNDIR/containers/ID

	// op holds one token: who has it may change the container. Output, exits
	// and readers don't need it.
	op chan struct{}

	mu      sync.Mutex // protects what follows up to the next blank line; not held during I/O but saving st
	st      state
	removed bool // Delete is done; nothing is saved any more

	made   chan struct{} // closed once create or adopt is done with what follows
	exited chan struct{} // closed once the exit is recorded

	// Set by create or adopt before anybody else sees the container.
	proc    *process // nil: it had ended before this shim
	log     *logFile // nil: output is dropped
	streams []*stream
	to      audience
	oom     *oomWatch
	holder  *process // keeps the terminal open; nil without one

	driver driver

	stdinMu sync.Mutex
	stdin   *os.File          // where attached input goes: a FIFO or the terminal; nil: nowhere
	inputs  map[*os.File]bool // the copies of stdin that attachments write to
}

func (s *Server) newContainer(id string, st state) *container {
	c := &container{
		srv: s, id: id, dir: filepath.Join(s.containersDir(), id), st: st,
		op: make(chan struct{}, 1), made: make(chan struct{}), exited: make(chan struct{}),
	}
	c.op <- struct{}{}
	c.driver = driverOf(c, st.Program)
	return c
}

// lock takes the container's token. The returned function gives it back.
func (c *container) lock() (unlock func()) {
	<-c.op
	return func() { c.op <- struct{}{} }
}

// startWait is how long a look at a container waits for its start under way to
// end: it mostly takes a millisecond.
const startWait = time.Second

// awaitStart waits until the call under way that changes the container has ended.
func (c *container) awaitStart() {
	select {
	case <-c.op:
		c.op <- struct{}{}
	case <-time.After(startWait):
	}
}

// state returns a copy of the state.
func (c *container) state() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st
}

// change saves the state that f makes of the present one. On an error nothing
// has changed.
func (c *container) change(f func(*state)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return c.notFound()
	}
	st := c.st
	f(&st)
	if err := saveState(c.dir, st); err != nil {
		return err
	}
	c.st = st
	return nil
}

// note is change for what has happened already, whether it can be saved or not: a
// later shim knows less, then.
func (c *container) note(f func(*state)) {
	err := c.change(f)
	if err == nil || errors.Is(err, shim.ErrNotFound) {
		return
	}
	c.srv.log.Error("cannot save what became of a container", "id", c.id, "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.st)
}

func (c *container) notFound() error {
	return fmt.Errorf("container %q: %w", c.id, shim.ErrNotFound)
}

// wrongState is the error of a call that the container's state rules out.
func (c *container) wrongState(p phase) error {
	return fmt.Errorf("container %q is %s: %w", c.id, p, shim.ErrState)
}

// status is the container as the protocol knows it; ok is false while it is
// being made or removed.
func (c *container) status() (s shim.Status, ok bool) {
	st := c.state()
	s = shim.Status{ID: st.ID, PID: st.PID, CreatedAt: st.CreatedAt, StartedAt: st.StartedAt}
	switch st.Phase {
	case created, starting:
		s.State = shim.Created
	case running:
		s.State = shim.Running
	case exited:
		s.State = shim.Exited
		s.Exit = st.Exit.exit()
	default:
		return s, false
	}
	return s, true
}

func (e *exitState) exit() *shim.Exit {
	if e == nil {
		return nil
	}
	return &shim.Exit{Code: e.Code, Signal: e.Signal, At: e.At, OOMKilled: e.OOMKilled, Known: e.Known}
}

// release closes everything the shim holds open of the container. Its processes
// have ended.
func (c *container) release() {
	c.oom.stop(c.srv.poll)
	for _, st := range c.streams {
		st.close()
	}
	c.to.close()
	c.closeStdin()
	if c.log != nil {
		c.log.close()
	}
	if c.holder != nil {
		// Fails only if it has ended.
		_ = c.holder.kill(unix.SIGKILL)
	}
}
