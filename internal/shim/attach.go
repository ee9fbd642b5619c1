package shim

import (
	"context"
	"fmt"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// Attach joins the standard streams of a running container until it ends (nil),
// every writer has failed, or ctx ends (ctx's error). A reader that falls behind
// by more than a mebibyte for some time loses output; the container and its log
// are slowed by no more than that.
func (c *Client) Attach(ctx context.Context, r AttachRequest) error {
	req := &shimpb.AttachRequest{
		Id: r.ID, Token: newToken(), Stdin: r.Stdin != nil, Stdout: r.Stdout != nil, Stderr: r.Stderr != nil,
	}
	leave, err := c.gate.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var s streams
	defer s.closeAll()
	// Never the caller's files: the shim makes the descriptors non-blocking.
	if err := s.addPipes(r.Stdin, r.Stdout, r.Stderr, false); err != nil {
		return fmt.Errorf("cannot make pipes for attach to container %q: %w", r.ID, err)
	}
	if err := s.send(ctx, c, req.Token); err != nil {
		return err
	}
	defer c.cancelWith(ctx, req.Token)()
	defer followSize(r.Resize, func(size Size) error { return c.Resize(ctx, r.ID, "", size.Width, size.Height) }, func() {})()

	// Not ctx: cancelWith ends the call.
	_, err = once(context.WithoutCancel(ctx), c, func(api shimpb.ShimClient) (*shimpb.Empty, error) {
		return api.Attach(context.WithoutCancel(ctx), req)
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	s.drain()
	return nil
}
