package server

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reapDelay is how long after a SIGCHLD orphans are reaped. Each start of a
// container raises several; one look afterwards is enough.
const reapDelay = 100 * time.Millisecond

// reapOrphans reaps processes that became children of the shim because their
// parents died (the shim is a child subreaper). Those it started itself are left
// to their owners.
func (s *Server) reapOrphans(ctx context.Context) {
	sigs := make(chan os.Signal, 1)
	signal.Notify(sigs, syscall.SIGCHLD)
	defer signal.Stop(sigs)
	sigs <- unix.SIGCHLD // there may be some already
	for {
		select {
		case <-sigs:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(reapDelay):
		case <-ctx.Done():
			return
		}
		for s.reapOne() {
		}
	}
}

// reapOne reaps one zombie, if there is one that nobody else will.
func (s *Server) reapOne() bool {
	if zombie() == 0 {
		return false
	}
	// While libcontainer starts a process, its helpers are children that it
	// waits for itself.
	s.starting.Lock()
	defer s.starting.Unlock()
	pid := zombie()
	if pid == 0 {
		return false
	}
	s.mu.Lock()
	p := s.children[pid]
	s.mu.Unlock()
	if p != nil {
		return s.collect(p)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil); err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaited > 0 {
		s.orphans[pid] = orphanEnd{exitStatus{wait: syscall.WaitStatus(ws), known: true}, time.Now()}
	}
	return true
}

// undisturbed runs f, which starts processes and waits for their ends itself:
// libcontainer's helpers and hooks, for instance. Nobody else takes those.
func (s *Server) undisturbed(f func() error) error {
	s.starting.RLock()
	defer s.starting.RUnlock()
	return f()
}

// zombie returns the pid of a child that can be reaped, or 0.
func zombie() int {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil {
		return 0
	}
	// siginfo_t: three ints, on 64-bit machines padding, then si_pid.
	const offset = 3*4 + (unsafe.Sizeof(uintptr(0)) - 4)
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), offset)))
}
