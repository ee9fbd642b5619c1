package nodeapi

import (
	"context"
	"errors"
	"net/http"
)

const keepPath = "/berth/v1/keep"

func (s *Server) keep(w http.ResponseWriter, r *http.Request) error {
	if err := s.cfg.Agent.Keep(r.Context()); err != nil {
		return err
	}
	return answer(w, struct{}{})
}

// Keep returns when all that was asked for and answered, and all that came of it, is
// on disk, or says why it can't be written: an agent that ends then forgets it.
func (c *Client) Keep(ctx context.Context) error {
	err := c.call(ctx, "POST", keepPath, nil, nil, &struct{}{})
	var said *Error
	if errors.As(err, &said) && said.Code == http.StatusNotFound {
		return nil // an older agent
	}
	return err
}
