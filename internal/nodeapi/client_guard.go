package nodeapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// ErrMute says that there is an agent which does not answer, be it stopped or
// stuck. It comes QuietTime and AnswerTime after the last sign of it.
var ErrMute = errors.New("the agent does not answer")

const (
	// QuietTime is how long a request may wait before the agent is asked whether it
	// is there at all. What takes long is waited for as long as it says so.
	QuietTime = 5 * time.Second
	// AnswerTime is how long it may take to say that it is there.
	AnswerTime = 5 * time.Second
)

// AwaitTrouble is for who waits for the agent to do something to containers. It
// returns ErrMute when the agent does not answer any more, what the agent says when
// it can do nothing, or the error of ctx when that ends before.
func (c *Client) AwaitTrouble(ctx context.Context) error {
	for {
		trouble, err := c.awaitWord(ctx)
		switch {
		case err != nil:
			return err
		case trouble != "":
			return errors.New(trouble)
		}
	}
}

// awaitMute returns ErrMute when the agent does not answer any more, or the error
// of ctx when that ends before.
func (c *Client) awaitMute(ctx context.Context) error {
	for {
		if _, err := c.awaitWord(ctx); err != nil {
			return err
		}
	}
}

// awaitWord asks the agent for its trouble after a while. One that is not there is
// not mute: whoever talks to it learns that by itself.
func (c *Client) awaitWord(ctx context.Context) (trouble string, err error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(QuietTime):
	}
	limited, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodGet, "http://berth"+versionPath, nil)
	if err != nil {
		return "", err
	}
	var v Version
	resp, err := c.http.Do(req)
	if err == nil {
		err = json.NewDecoder(resp.Body).Decode(&v)
		resp.Body.Close()
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return "", ErrMute
	}
	return v.Trouble, nil
}

// guard ends a request when the agent goes mute.
type guard struct {
	ctx    context.Context // of the request; its cause is ErrMute then
	cancel context.CancelCauseFunc
	leave  context.CancelFunc // ends the watching alone
	done   sync.WaitGroup
}

func (c *Client) guard(ctx context.Context) *guard {
	g := &guard{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	watching, leave := context.WithCancel(g.ctx)
	g.leave = leave
	g.done.Go(func() {
		if errors.Is(c.awaitMute(watching), ErrMute) {
			g.cancel(ErrMute)
		}
	})
	return g
}

// standsAlone lets the request go on unguarded: a stream that stands is not cut.
func (g *guard) standsAlone() {
	g.leave()
	g.done.Wait()
}

// end ends the request, and frees what the guard holds.
func (g *guard) end() {
	g.cancel(nil)
	g.standsAlone()
}

// err is ErrMute if that is why the request failed with err.
func (g *guard) err(err error) error {
	if err != nil && errors.Is(context.Cause(g.ctx), ErrMute) {
		return ErrMute
	}
	return err
}

// guardedBody is the body of an answer that ends its guard when it is closed.
type guardedBody struct {
	io.ReadCloser
	g *guard
}

func (b guardedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		return n, io.EOF
	}
	return n, b.g.err(err)
}

func (b guardedBody) Close() error {
	err := b.ReadCloser.Close()
	b.g.end()
	return err
}

// guardedUpgrade guards a request for an upgraded connection until it stands. Its
// transport opens connections with dial.
type guardedUpgrade struct {
	c    *Client
	http http.RoundTripper

	mu   sync.Mutex
	conn net.Conn // the last that was opened
}

func (u *guardedUpgrade) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := u.c.dial(ctx, network, addr)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.conn = conn
	return conn, err
}

func (u *guardedUpgrade) RoundTrip(req *http.Request) (*http.Response, error) {
	g := u.c.guard(req.Context())
	// The transport reads the answer without looking at the context.
	stop := context.AfterFunc(g.ctx, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.conn != nil {
			u.conn.Close()
		}
	})
	resp, err := u.http.RoundTrip(req)
	stop()
	err = g.err(err)
	g.end()
	return resp, err
}
