package server

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"
)

// process is one process the shim watches: a container's first, an exec's, or a
// terminal's holder.
type process struct {
	pid   int
	ticks uint64
	pidfd int
	child bool
	lc    *libcontainer.Process // of a child that libcontainer started; may be nil

	mu     sync.Mutex // held while pidfd and watch are used or changed
	once   sync.Once
	watch  *watch
	ended  func()        // called once, after done is closed; may be nil
	done   chan struct{} // closed when it has ended and, if a child, is reaped
	status exitStatus    // valid once done is closed
	at     time.Time     // likewise
}

// watchProcess starts to watch p, which must be alive or a zombie of ours, and
// calls ended in a goroutine of its own once it is over.
func (s *Server) watchProcess(p *process, ended func()) error {
	p.done, p.ended = make(chan struct{}), ended
	if p.child {
		s.mu.Lock()
		s.children[p.pid] = p
		s.mu.Unlock()
	}
	p.mu.Lock() // it may end at once
	var err error
	p.watch, err = s.poll.add(p.pidfd, unix.EPOLLIN, func(uint32) { s.collect(p) })
	p.mu.Unlock()
	if err != nil {
		s.mu.Lock()
		delete(s.children, p.pid)
		s.mu.Unlock()
		return err
	}
	return nil
}

// findParent finds out whether an adopted process is a child of this one: an
// upgraded shim's are.
func (p *process) findParent() {
	if st, err := readStat(p.pid); err == nil {
		p.child = st.parent == os.Getpid()
	}
}

// collect reaps p and remembers how it ended. The poller and the reaper of
// orphans may both call it; it blocks until the end is known. It returns false and
// has done nothing if the server is frozen: a new program will see the end.
func (s *Server) collect(p *process) bool {
	s.ends.RLock()
	defer s.ends.RUnlock()
	if s.frozen {
		return false
	}
	p.once.Do(func() {
		p.at = time.Now()
		if p.child {
			p.status = p.reap()
			s.mu.Lock()
			if s.children[p.pid] == p {
				delete(s.children, p.pid)
			}
			s.mu.Unlock()
		} else {
			p.status = p.exitOfStranger()
		}
		p.mu.Lock()
		s.poll.remove(p.watch)
		unix.Close(p.pidfd)
		p.pidfd = -1
		p.mu.Unlock()
		close(p.done)
		if p.ended != nil {
			s.work.Go(p.ended)
		}
	})
	<-p.done
	return true
}

// reap waits for a child that has ended.
func (p *process) reap() exitStatus {
	if p.lc != nil {
		// libcontainer holds a handle of its own, which this releases. The
		// error only repeats that the process failed.
		ps, _ := p.lc.Wait()
		if ps == nil {
			return exitStatus{}
		}
		ws, ok := ps.Sys().(syscall.WaitStatus)
		return exitStatus{wait: ws, known: ok}
	}
	var ws unix.WaitStatus
	for {
		pid, err := unix.Wait4(p.pid, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		return exitStatus{wait: syscall.WaitStatus(ws), known: err == nil && pid == p.pid}
	}
}

// strangerWait is how long a new parent of an adopted process may take to reap it.
const strangerWait = 500 * time.Millisecond

// exitOfStranger finds out how a process ended that is no child. While it is a
// zombie, /proc tells; afterwards the pidfd does, on kernels that can.
func (p *process) exitOfStranger() exitStatus {
	for end := time.Now().Add(strangerWait); ; time.Sleep(5 * time.Millisecond) {
		if st, ok := exitOfPidfd(p.pidfd); ok {
			return st
		}
		if st, ok := exitOfZombie(p.pid, p.ticks); ok {
			return st
		}
		if time.Now().After(end) {
			return exitStatus{}
		}
	}
}

// kill sends sig to the process. A process that has ended is no error.
func (p *process) kill(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidfd < 0 {
		return nil
	}
	err := unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
	if err == nil || err == unix.ESRCH {
		return nil
	}
	return os.NewSyscallError("pidfd_send_signal", err)
}

// childProcess makes the process of a child libcontainer has just started. The
// caller holds s.starting, so nobody else reaps the child before it is watched.
func childProcess(lp *libcontainer.Process) (*process, error) {
	pid, err := lp.Pid()
	if err != nil {
		return nil, err
	}
	p := &process{pid: pid, child: true, lc: lp}
	st, err := readStat(pid)
	if err != nil {
		return nil, fmt.Errorf("cannot read start time of process %d: %w", pid, err)
	}
	p.ticks = st.ticks
	if p.pidfd, err = openPidfd(pid, st.ticks); err != nil {
		return nil, err
	}
	return p, nil
}

// startProcess starts a process of a container, with the program of its seccomp
// profile where an earlier process had the same.
func (s *Server) startProcess(lc *libcontainer.Container, lp *libcontainer.Process) error {
	config := lc.Config()
	if config.Seccomp == nil {
		return lc.Start(lp)
	}
	memo, err := s.seccomp.For(config.Seccomp)
	if err != nil {
		s.log.Warn("the seccomp program is made anew", "err", err)
		return lc.Start(lp)
	}
	lp.ExtraFiles = []*os.File{memo.File}
	err = lc.Start(lp)
	memo.Done(err == nil)
	return err
}
