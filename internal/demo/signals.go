package demo

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// notifyTerm gives a channel that is closed at the first SIGTERM or SIGINT. As
// process 1 of a container, a program that does not ask for signals never gets
// them.
func notifyTerm() <-chan struct{} {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	term := make(chan struct{})
	go func() {
		<-signals
		close(term)
		for range signals { // later ones change nothing
		}
	}()
	return term
}

// reapOrphans, in process 1, collects the exit statuses of processes whose
// parents have ended. Elsewhere it does nothing. Commands that start processes
// don't wait for them by pid, so nothing is taken away from anybody.
func reapOrphans() (stop func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			reap()
		}
	}()
	return func() { signal.Stop(children) }
}

// reap collects what has ended and says how many that were.
func reap() (n int) {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return n
		}
		n++
	}
}

// wait waits for d and reports whether SIGTERM came first.
func (p *program) wait(d time.Duration) (byTerm bool) {
	if d == forever {
		<-p.term
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-p.term:
		return true
	}
}
