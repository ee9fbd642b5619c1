package shim

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// Events calls handle for everything that happens, one at a time, until ctx
// ends (it returns ctx's error) or the shim can't be reached any more. At the
// start and after each reconnection, the exits of all containers not yet
// deleted are sent again, then an event of kind Replayed: an exit is seen at
// least once, other events may be lost while the shim is away.
func (c *Client) Events(ctx context.Context, handle func(Event)) error {
	for {
		if err := c.eventsOnce(ctx, handle); ctx.Err() != nil {
			return ctx.Err()
		} else if !errors.Is(err, ErrGone) {
			return err
		}
		c.cfg.Log.Warn("connection to the shim lost, connecting again", "run", c.cfg.RunDir)
		// Makes sure a shim is there, with back-off.
		if _, err := c.ping(ctx); err != nil {
			return err
		}
	}
}

func (c *Client) ping(ctx context.Context) (*shimpb.HelloResponse, error) {
	return askAgain(ctx, c, func(s shimpb.ShimClient) (*shimpb.HelloResponse, error) {
		return s.Hello(ctx, &shimpb.HelloRequest{Protocol: Protocol})
	})
}

// eventsOnce streams until the connection is lost. The stream has a connection
// of its own: closing it is the only way to tell the shim that nobody listens.
func (c *Client) eventsOnce(ctx context.Context, handle func(Event)) error {
	conn, _, err := c.dial(ctx)
	if err != nil {
		var perr *protocolError
		if errors.As(err, &perr) {
			return err
		}
		return ErrGone
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	stream, err := shimpb.NewShimClient(conn).Events(ctx, &shimpb.Empty{})
	if err != nil {
		return fromRPC(err)
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			return ErrGone
		}
		handle(Event{Kind: EventKind(e.Kind), ID: e.Id, At: time.Unix(0, e.At), Exit: exitPtr(e.Exit)})
	}
}
