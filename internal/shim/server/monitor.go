package server

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/containerd/go-runc"
)

// monitor starts programs and waits for them beside the reaper of orphans.
type monitor struct{ s *Server }

var _ runc.ProcessMonitor = monitor{}

// outputWait is how long the output of a program is waited for that has ended: what
// it left may hold it open.
const outputWait = time.Second

// Start implements [runc.ProcessMonitor].
func (m monitor) Start(cmd *exec.Cmd) (chan runc.Exit, error) {
	p, err := m.start(cmd)
	if err != nil {
		return nil, err
	}
	exit := make(chan runc.Exit, 1)
	go func() { exit <- m.wait(cmd, p) }()
	return exit, nil
}

// StartLocked implements [runc.ProcessMonitor]: the thread that starts the program
// stays until its end, since the program is killed when the thread ends.
func (m monitor) StartLocked(cmd *exec.Cmd) (chan runc.Exit, error) {
	started := make(chan error, 1)
	exit := make(chan runc.Exit, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p, err := m.start(cmd)
		started <- err
		if err == nil {
			exit <- m.wait(cmd, p)
		}
	}()
	return exit, <-started
}

// Wait implements [runc.ProcessMonitor].
func (monitor) Wait(_ *exec.Cmd, exit chan runc.Exit) (int, error) { return (<-exit).Status, nil }

func (m monitor) start(cmd *exec.Cmd) (*process, error) {
	cmd.WaitDelay = outputWait
	// Nobody reaps it before it is watched.
	m.s.starting.RLock()
	defer m.s.starting.RUnlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p, err := child(cmd.Process.Pid)
	if err == nil {
		err = m.s.watchProcess(p, nil)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return p, nil
}

func (m monitor) wait(cmd *exec.Cmd, p *process) runc.Exit {
	<-p.done
	_ = cmd.Wait() // for its output: the process was reaped
	e := runc.Exit{Timestamp: p.at, Pid: p.pid, Status: int(p.status.code())}
	if !p.status.known {
		e.Status = 255
	}
	return e
}

// takeOrphan takes over the process that start leaves to this one when it ends. own
// is given it before its end may be told to ended.
func (s *Server) takeOrphan(start func() (pid int, err error), own func(*process), ended func()) (*process, error) {
	s.mu.Lock()
	s.awaited++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.awaited--; s.awaited == 0 {
			clear(s.orphans)
		}
	}()
	pid, err := start()
	if err != nil {
		return nil, err
	}
	// Nobody reaps it before it is watched.
	s.starting.RLock()
	defer s.starting.RUnlock()
	s.mu.Lock()
	status, over := s.orphans[pid]
	delete(s.orphans, pid)
	s.mu.Unlock()
	if over {
		p := &process{pid: pid, pidfd: -1, child: true, done: make(chan struct{}), status: status.exitStatus, at: status.at}
		close(p.done)
		own(p)
		if ended != nil {
			s.work.Go(ended)
		}
		return p, nil
	}
	p, err := child(pid)
	if err != nil {
		return nil, err
	}
	own(p)
	return p, s.watchProcess(p, ended)
}

// orphanEnd is how a process ended that nobody had taken yet.
type orphanEnd struct {
	exitStatus
	at time.Time
}

// child makes the process of a child that nobody reaps meanwhile.
func child(pid int) (*process, error) {
	st, err := readStat(pid)
	if err != nil {
		return nil, fmt.Errorf("cannot read start time of process %d: %w", pid, err)
	}
	if st.parent != os.Getpid() {
		return nil, fmt.Errorf("process %d is no child of the shim but of process %d", pid, st.parent)
	}
	p := &process{pid: pid, child: true, ticks: st.ticks}
	p.pidfd, err = openPidfd(pid, st.ticks)
	return p, err
}

// over says that the process has ended.
func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
	}
	st, err := readStat(p.pid)
	return err != nil || st.state == 'Z' || p.ticks != st.ticks
}
