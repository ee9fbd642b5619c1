package shim

import (
	"context"
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

// cancelWith tells the shim to end call when ctx ends. The returned function
// stops that, and waits for it if it is under way.
func (c *Client) cancelWith(ctx context.Context, call uint64) (stop func()) {
	done := make(chan struct{})
	stopAfter := context.AfterFunc(ctx, func() {
		defer close(done)
		// A new deadline: ctx has ended, and the shim must still be told.
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		conn, err := c.current()
		if conn == nil || err != nil {
			return // a lost connection ends the call, too
		}
		// An error means that the connection is lost.
		_, _ = shimpb.NewShimClient(conn).Cancel(cctx, &shimpb.CancelRequest{Call: call})
	})
	return func() {
		if !stopAfter() {
			<-done
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
