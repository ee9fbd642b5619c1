package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// Exec runs a process in a running container and returns how it ended, after
// its output is written. Output that a process left behind still writes is
// followed as long as less than a second passes between two pieces of it, for
// ten seconds at most.
//
// When ctx ends or r.Timeout is over, every process of the exec is killed and
// reaped; the error is then context.Canceled or context.DeadlineExceeded and
// the Exit says how the process ended. A command that can't be run gives a
// *StartError. Read from r.Stdin may outlast Exec if it blocks.
//
// The output does not pass through the shim: the process has the other end of
// the pipe, so losing the shim loses no output (but the exit code, ErrGone).
func (c *Client) Exec(ctx context.Context, r ExecRequest) (Exit, error) {
	proc, err := json.Marshal(r.Process)
	if err != nil {
		return Exit{}, fmt.Errorf("cannot encode process of exec in container %q: %w", r.ID, err)
	}
	req := &shimpb.ExecRequest{
		Id: r.ID, ExecId: r.ExecID, Process: proc, Token: newToken(), Timeout: int64(r.Timeout), Tty: r.TTY,
		BeginOnly: true,
	}
	var s streams
	defer s.closeAll()
	if r.TTY {
		err = s.addTerminal(r.Stdout, func(tty *os.File) (stop func()) { return c.serveTerminal(tty, r) })
	} else {
		req.Stdin, req.Stdout, req.Stderr = r.Stdin != nil, r.Stdout != nil, r.Stderr != nil
		err = s.addPipes(r.Stdin, r.Stdout, r.Stderr, true)
	}
	if err != nil {
		return Exit{}, fmt.Errorf("cannot make pipes for exec in container %q: %w", r.ID, err)
	}
	defer c.cancelWith(ctx, req.Token)()
	resp, err := begin(ctx, c, &s, req.Token, func(ctx context.Context, api shimpb.ShimClient) (*shimpb.ExecResponse, error) {
		return api.Exec(ctx, req)
	})
	if err == nil && resp.Begun { // else the shim knows no Await, and it is over
		resp, err = c.await(ctx, req.Token)
	}
	if err != nil {
		return Exit{}, err
	}
	if f := resp.Failure; f != nil {
		return Exit{}, &StartError{Reason: f.Reason, Message: f.Message}
	}
	s.drain()
	exit := exitOf(resp.Exit)
	switch {
	case resp.TimedOut:
		return exit, fmt.Errorf("exec in container %q took longer than %s: %w", r.ID, r.Timeout, context.DeadlineExceeded)
	case ctx.Err() != nil:
		return exit, ctx.Err()
	}
	return exit, s.err()
}

// serveTerminal makes an exec's terminal known to Resize and copies the input
// to it. The returned function undoes that.
func (c *Client) serveTerminal(tty *os.File, r ExecRequest) (stop func()) {
	key := [2]string{r.ID, r.ExecID}
	c.mu.Lock()
	c.terminals[key] = tty
	c.mu.Unlock()
	if r.Stdin != nil {
		// Not waited for: Read can't be interrupted.
		go func() { _, _ = io.Copy(tty, r.Stdin) }()
	}
	hangUp := func() { tty.Close() } // the last of its master: what runs on it gets SIGHUP
	stopResize := followSize(r.Resize, func(s Size) error { return ResizeTerminal(tty, s) }, hangUp)
	return func() {
		stopResize()
		c.mu.Lock()
		delete(c.terminals, key)
		c.mu.Unlock()
	}
}

// followSize calls set for each size until the channel is closed, and ended then,
// or the returned function is called. The size of a terminal is no more than a
// courtesy: errors, which come when it is gone, are not reported.
func followSize(sizes <-chan Size, set func(Size) error, ended func()) (stop func()) {
	if sizes == nil {
		return func() {}
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case s, ok := <-sizes:
				if !ok {
					ended()
					return
				}
				_ = set(s)
			case <-quit:
				return
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}
}
