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
		BeginOnly: true,
	}
	var s streams
	defer s.closeAll()
	// Never the caller's files: the shim makes the descriptors non-blocking.
	if err := s.addPipes(r.Stdin, r.Stdout, r.Stderr, false); err != nil {
		return fmt.Errorf("cannot make pipes for attach to container %q: %w", r.ID, err)
	}
	defer c.cancelWith(ctx, req.Token)()
	defer followSize(r.Resize, func(size Size) error { return c.Resize(ctx, r.ID, "", size.Width, size.Height) }, func() {})()

	resp, err := begin(ctx, c, &s, req.Token, func(ctx context.Context, api shimpb.ShimClient) (*shimpb.AttachResponse, error) {
		return api.Attach(ctx, req)
	})
	if err == nil && resp.Begun { // else the shim knows no Await, and it is over
		_, err = c.await(ctx, req.Token)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	s.drain()
	return nil
}
