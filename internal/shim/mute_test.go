package shim_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/berth-run/berth/internal/shim"
)

// A shim that is stopped is named, by who is connected and by who wants to be.
func TestAShimThatDoesNotAnswer(t *testing.T) {
	n := newNode(t)
	pid := n.shimPID()
	if err := n.Answers(n.ctx); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	newcomer := make(chan error, 1)
	go func() {
		c, err := shim.Ensure(n.ctx, n.config())
		if err == nil {
			err = c.Close()
		}
		newcomer <- err
	}()
	for who, err := range map[string]error{"the client": n.Answers(n.ctx), "a newcomer": <-newcomer} {
		var mute *shim.MuteError
		if !errors.As(err, &mute) || mute.PID != pid {
			t.Errorf("%s is told %v, want that process %d does not answer", who, err, pid)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := n.Answers(n.ctx); err != nil {
		t.Errorf("when it goes on: %v", err)
	}
}
