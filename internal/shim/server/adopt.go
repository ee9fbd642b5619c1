package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
)

// adoptAll takes over what a former shim left in the run directory: it resumes
// what runs, completes what was under way, and removes what was half made. One
// container's trouble is logged and does not touch the others. given is what a
// former program of this process hands over; nil: there was none.
func (s *Server) adoptAll(given *handover) error {
	entries, err := os.ReadDir(s.containersDir())
	if err != nil {
		return fmt.Errorf("cannot look for containers: %w", err)
	}
	began := time.Now()
	var found []*container
	pidfds := make(map[*container]int)
	// First of all pin the processes: from then on the kernel remembers their
	// exit codes.
	for _, e := range entries {
		if !e.IsDir() || validID(e.Name()) != nil {
			continue
		}
		st, err := loadState(filepath.Join(s.containersDir(), e.Name()))
		if err != nil {
			s.log.Error("state of a container is not usable, removing the container", "id", e.Name(), "err", err)
			s.sweepBroken(e.Name())
			continue
		}
		c := s.newContainer(st.ID, st)
		found = append(found, c)
		if st.PID > 0 && st.BootID == s.bootID && st.Exit == nil {
			if fd, err := openPidfd(st.PID, st.Ticks); err == nil {
				pidfds[c] = fd
			}
		}
	}
	for _, c := range found {
		fd, alive := pidfds[c]
		if !alive {
			fd = -1
		}
		if err := s.adopt(c, fd, given); err != nil {
			s.log.Error("cannot adopt container", "id", c.id, "err", err)
		}
	}
	if given != nil {
		s.resumeSessions(given)
		given.close()
	}
	s.sweepLibcontainer()
	if len(found) > 0 {
		s.log.Info("containers adopted", "count", len(found), "took", time.Since(began))
	}
	return nil
}

// adopt takes over one container. pidfd is that of its first process, or -1 if
// that is gone. given is nil, or what a former program of this process hands over.
func (s *Server) adopt(c *container, pidfd int, given *handover) error {
	st := c.st
	k, wasOurs := given.take(c.id)
	defer k.close()
	close(c.made) // what follows is set before the process is watched
	s.mu.Lock()
	s.containers[c.id] = c
	s.mu.Unlock()
	if pidfd >= 0 {
		p := &process{pid: st.PID, ticks: st.Ticks, pidfd: pidfd}
		p.findParent()
		c.proc = p
	}
	switch {
	case st.BootID != s.bootID:
		// The machine was started anew: nothing of it is left but files.
		st.Phase, st.CgroupPaths, st.PID, st.HolderPID = deleting, nil, 0, 0
		c.st = st
		fallthrough
	case st.Phase == creating, st.Phase == deleting:
		if c.proc != nil {
			if err := s.watchProcess(c.proc, c.ended); err != nil {
				return err
			}
		} else {
			close(c.exited)
		}
		s.killHolder(st)
		if st.Phase == creating {
			s.log.Info("removing a container that was not completely created", "id", c.id)
		}
		defer c.lock()()
		if err := c.unmake(); err != nil {
			return err
		}
		s.forget(c)
		return nil
	case st.Phase == exited:
		close(c.exited)
		s.killHolder(st)
		return nil
	}

	killStrayExecs(st.CgroupPaths, given.execGroups())
	if st.LogPath != "" {
		c.log = newLogFile(st.LogPath, st.LogMaxBytes, st.LogMaxFiles)
		if err := c.log.takeOver(&k); err != nil {
			// Tried again with each output.
			s.log.Warn("cannot open log", "id", c.id, "err", err)
		}
	}
	resume := c.rejoin(&k) // before any output is read
	if err := c.adoptStdio(st, &k); err != nil {
		s.log.Error("standard streams of a container are lost", "id", c.id, "err", err)
	}
	resume()
	if !wasOurs && c.endedUnread(st) {
		c.noteUnread()
	}
	if c.proc == nil {
		if st.Phase == starting {
			// It may have run: nobody must start it again.
			if err := c.change(func(st *state) { st.Phase, st.StartedAt = running, time.Now() }); err != nil {
				return err
			}
		}
		// In the background: nobody else should wait for its output.
		s.work.Go(func() { c.endedUnseen(st) })
		return nil
	}
	var err error
	if c.oom, err = watchOOM(s.poll, st.CgroupPaths, c.oomHappened); err != nil {
		s.log.Warn("OOM kills are noticed only at the end", "id", c.id, "err", err)
	}
	if err := s.watchProcess(c.proc, c.ended); err != nil {
		return err
	}
	if st.Phase == starting {
		return c.completeStart()
	}
	return nil
}

// endedUnseen records the end of a container while no shim was there: nobody
// knows how it ended.
func (c *container) endedUnseen(st state) {
	if !st.PrivatePIDs {
		if err := killCgroup(st.CgroupPaths); err != nil {
			c.srv.log.Warn("cannot kill what a container left", "id", c.id, "err", err)
		}
	}
	until := time.Now().Add(drainWait)
	for _, stream := range c.streams {
		stream.drained(time.Until(until))
		stream.flush()
	}
	c.srv.killHolder(st)
	exit := exitState{At: time.Now()}
	if n, err := oomKills(st.CgroupPaths); err == nil && n > 0 {
		exit.OOMKilled = true
	}
	c.recordExit(exit)
}

// endedUnread says that a container that ran ended before this shim opened its
// output: what a FIFO held then went with its last writer. What a terminal holds
// stays as long as its holder does.
func (c *container) endedUnread(st state) bool {
	switch {
	case st.Phase == created || c.log == nil:
		return false
	case st.TTY:
		return len(c.streams) == 0 // nobody held it
	case c.proc == nil:
		return true
	}
	stat, err := readStat(c.proc.pid)
	return err != nil || stat.state == 'Z'
}

// noteUnread says in the log that output may be missing, behind what there is of
// a last line.
func (c *container) noteUnread() {
	for _, stream := range c.streams {
		stream.flush()
	}
	c.log.note("lines may be missing here: no shim was running when the container ended")
}

// adoptStdio opens the container's streams again.
func (c *container) adoptStdio(st state, k *kept) error {
	if st.TTY {
		return c.adoptTerminal(st, k)
	}
	var errs []error
	for _, name := range []string{"stdout", "stderr"} {
		errs = append(errs, c.openOutput(name))
		// Without a writer ever, there is no end to see either: if the
		// container has closed it, this makes one.
		if fd, err := openFIFO(c.dir, name, unix.O_WRONLY); err == nil {
			unix.Close(fd)
		}
	}
	errs = append(errs, c.followStreams())
	switch {
	case k.Stdin >= 0:
		c.stdinMu.Lock()
		c.stdin, k.Stdin = os.NewFile(uintptr(k.Stdin), "stdin"), -1
		c.stdinMu.Unlock()
	case st.Stdin && !st.StdinOnce && c.proc != nil:
		errs = append(errs, c.openStdin())
	}
	return errors.Join(errs...)
}

// completeStart does what the former shim was about to do.
func (c *container) completeStart() error {
	if err := c.driver.resume(); err != nil {
		return fmt.Errorf("cannot complete start of container %q: %w", c.id, err)
	}
	now := time.Now()
	err := c.change(func(st *state) {
		st.StartedAt = now
		if st.Phase == starting {
			st.Phase = running
		}
	})
	if err != nil {
		return err
	}
	c.srv.events.publish(shim.Event{Kind: shim.ContainerStarted, ID: c.id, At: now})
	return nil
}

// killHolder ends the process that holds a terminal nobody needs any more.
func (s *Server) killHolder(st state) {
	if st.HolderPID == 0 {
		return
	}
	fd, err := openPidfd(st.HolderPID, st.HolderTicks)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// sweepBroken removes a container whose state can't be read, by what
// libcontainer knows of it.
func (s *Server) sweepBroken(id string) {
	c := s.newContainer(id, state{ID: id})
	b := &builtin{c: c}
	if lc, err := b.container(); err == nil {
		if ls, err := lc.State(); err == nil && len(ls.CgroupPaths) > 0 {
			own := true
			for _, p := range ls.CgroupPaths {
				own = own && ownCgroup(p)
			}
			if own {
				c.st.CgroupPaths = ls.CgroupPaths
			}
		}
	}
	if len(c.st.CgroupPaths) > 0 {
		if err := killCgroup(c.st.CgroupPaths); err != nil {
			s.log.Error("cannot kill container", "id", id, "err", err)
			return
		}
	}
	if err := b.destroy(c.st); err != nil {
		s.log.Error("cannot remove container", "id", id, "err", err)
		return
	}
	if err := os.RemoveAll(c.dir); err != nil {
		s.log.Error("cannot remove container", "id", id, "err", err)
	}
}

// sweepLibcontainer removes libcontainer's state of containers we don't have.
func (s *Server) sweepLibcontainer() {
	entries, err := os.ReadDir(s.libcontainerDir())
	if err != nil {
		return // there is none yet
	}
	for _, e := range entries {
		s.mu.Lock()
		known := s.containers[e.Name()] != nil
		s.mu.Unlock()
		if !known && validID(e.Name()) == nil {
			s.sweepBroken(e.Name())
		}
	}
}
