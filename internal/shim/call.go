package shim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// newToken returns a number that names a call or a datagram. It is not zero.
func newToken() uint64 {
	for {
		if t := rand.Uint64(); t != 0 {
			return t
		}
	}
}

// cancelAgain is how long after a Cancel the next one is sent while the call goes
// on: it may have overtaken its call on the way, and then found nothing to end.
const cancelAgain = 20 * time.Millisecond

// cancelWith tells the shim to end call when ctx ends, until the returned
// function is called, which waits for what of that is under way.
func (c *Client) cancelWith(ctx context.Context, call uint64) (stop func()) {
	over := make(chan struct{}) // closed when the call has returned
	done := make(chan struct{})
	stopAfter := context.AfterFunc(ctx, func() {
		defer close(done)
		for wait := cancelAgain; ; wait = min(2*wait, time.Second) {
			c.cancel(ctx, call)
			select {
			case <-over:
				return
			case <-time.After(wait):
			}
		}
	})
	return func() {
		close(over)
		if !stopAfter() {
			<-done
		}
	}
}

// cancel tells the shim once to end call.
func (c *Client) cancel(ctx context.Context, call uint64) {
	conn, err := c.current()
	if conn == nil || err != nil {
		return // a lost connection ends the call, too; or the call is still to make one
	}
	// A new deadline: ctx has ended, and the shim must still be told.
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	// An error means that the connection is lost.
	_, _ = shimpb.NewShimClient(conn).Cancel(cctx, &shimpb.CancelRequest{Call: call})
}

// begin hands over the streams of an exec or an attachment and makes the call f that
// begins it. ctx does not end that call: cancelWith does, and then the shim answers
// after everything of it is dead.
func begin[T any](ctx context.Context, c *Client, s *streams, token uint64, f func(context.Context, shimpb.ShimClient) (T, error)) (T, error) {
	leave, err := c.gate.Enter(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	defer leave()
	if err := s.send(ctx, c, token); err != nil {
		var zero T
		return zero, err
	}
	ctx = context.WithoutCancel(ctx)
	return ask(ctx, c, func(api shimpb.ShimClient) (T, error) { return f(ctx, api) })
}

// await returns when an exec or an attachment is over that was begun, upgrades or
// not. ErrGone says that it went with its shim.
func (c *Client) await(ctx context.Context, token uint64) (*shimpb.ExecResponse, error) {
	calling := context.WithoutCancel(ctx) // cancelWith ends it
	for {
		resp, err := ask(calling, c, func(api shimpb.ShimClient) (*shimpb.ExecResponse, error) {
			return api.Await(calling, &shimpb.AwaitRequest{Token: token})
		})
		switch {
		case errors.Is(err, ErrNotFound):
			return nil, fmt.Errorf("%w: %w", ErrGone, err)
		case !errors.Is(err, ErrGone):
			return resp, err
		}
		if _, cerr := c.connection(ctx); cerr != nil {
			return nil, fmt.Errorf("%w: %w", ErrGone, cerr)
		}
	}
}

func timeOf(unixNano int64) time.Time {
	if unixNano == 0 {
		return time.Time{}
	}
	return time.Unix(0, unixNano)
}

func exitOf(e *shimpb.ExitStatus) Exit {
	return Exit{Code: e.Code, Signal: e.Signal, At: timeOf(e.At), OOMKilled: e.OomKilled, Known: e.Known}
}

func exitPtr(e *shimpb.ExitStatus) *Exit {
	if e == nil {
		return nil
	}
	x := exitOf(e)
	return &x
}
