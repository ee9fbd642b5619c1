package nodeapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-run/berth/internal/agent"
)

// pipes is a listener whose connections are pipes, so that time can be virtual.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// clientOf is a client of an agent that answers with h, until the test ends.
func clientOf(t *testing.T, h http.HandlerFunc) (c *Client, end func()) {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Hour}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	c = newClient(l.dial)
	return c, func() { c.Close(); srv.Close(); <-served }
}

// hangs answers nothing.
func hangs(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // so that it is seen when the client leaves
	<-r.Context().Done()
}

func TestAnAgentThatHangsIsNotWaitedFor(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *Client) error{
		"a question":     func(ctx context.Context, c *Client) error { _, err := c.Pods(ctx); return err },
		"a stop":         func(ctx context.Context, c *Client) error { _, err := c.Stop(ctx, "a", "b", nil); return err },
		"a removal":      func(ctx context.Context, c *Client) error { return c.DeleteRef(ctx, agent.Ref{}, nil) },
		"images":         func(ctx context.Context, c *Client) error { _, err := c.Images(ctx); return err },
		"a watch begins": func(ctx context.Context, c *Client) error { return c.Watch(ctx, func() {}, nil) },
		"logs begin":     func(ctx context.Context, c *Client) error { return c.Logs(ctx, LogsRequest{}, nil) },
		"a log": func(ctx context.Context, c *Client) error {
			_, err := c.ContainerLog(ctx, ContainerLogRequest{Namespace: "a", Pod: "b", Container: "c"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, end := clientOf(t, func(_ http.ResponseWriter, r *http.Request) { hangs(r) })
				defer end()
				began := time.Now()
				if err := ask(t.Context(), c); !errors.Is(err, ErrMute) || errors.Is(err, ErrCut) {
					t.Errorf("the answer is %v", err)
				}
				if took := time.Since(began); took != QuietTime+AnswerTime {
					t.Errorf("it comes after %s, want %s", took, QuietTime+AnswerTime)
				}
			})
		})
	}
}

func TestALogThatStopsInTheMiddleIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, end := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != versionPath {
				_, _ = io.WriteString(w, "a line\n")
				_ = http.NewResponseController(w).Flush()
			}
			hangs(r)
		})
		defer end()
		body, err := c.ContainerLog(t.Context(), ContainerLogRequest{Namespace: "a", Pod: "b", Container: "c"})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		if string(text) != "a line\n" || !errors.Is(err, ErrMute) {
			t.Errorf("it is %q, %v", text, err)
		}
		body.Close()
	})
}

func TestAnAgentThatIsBusyIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, end := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != versionPath {
				time.Sleep(10 * time.Minute)
			}
			_, _ = io.WriteString(w, "{}")
		})
		defer end()
		if _, err := c.PruneImages(t.Context(), true); err != nil {
			t.Error(err)
		}
	})
}

func TestAStreamThatStandsIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, end := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == versionPath {
				hangs(r)
				return
			}
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Minute)
			_, _ = io.WriteString(w, "u/c 0 2026-01-02T03:04:05Z stdout F late\n")
		})
		defer end()
		var got []string
		err := c.Logs(t.Context(), LogsRequest{}, func(l LogLine) error { got = append(got, string(l.Text)); return nil })
		if err != nil || strings.Join(got, ",") != "late" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestWhoWaitsForSomethingLearnsThatTheAgentIsMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := time.Now().Add(time.Hour)
		c, end := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			if time.Now().After(hung) {
				hangs(r)
			}
			_, _ = io.WriteString(w, "{}")
		})
		defer end()
		if err := c.awaitMute(t.Context()); !errors.Is(err, ErrMute) || time.Now().Before(hung) {
			t.Errorf("it is told %v at %s", err, time.Now())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.awaitMute(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who leaves is told %v", err)
		}
	})
}

func TestWhoWaitsForContainersLearnsOfTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begins := time.Now().Add(time.Hour)
		c, end := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
			v := Version{}
			if time.Now().After(begins) {
				v.Trouble = "the shim does not answer"
			}
			_ = answer(w, v)
		})
		defer end()
		if err := c.AwaitTrouble(t.Context()); err == nil || err.Error() != "the shim does not answer" || time.Now().Before(begins) {
			t.Errorf("it is told %v at %s", err, time.Now())
		}
		// What needs no container goes on.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.awaitMute(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who waits for the agent alone is told %v", err)
		}
	})
}

func TestAnExecThatDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, end := clientOf(t, func(_ http.ResponseWriter, r *http.Request) { hangs(r) })
		defer end()
		executor, err := c.Exec("a", "b", "c", agent.StreamRequest{Command: []string{"true"}, Stdout: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}); err == nil || !strings.Contains(err.Error(), ErrMute.Error()) {
			t.Errorf("it fails with %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard}); err == nil || time.Since(began) > time.Second {
			t.Errorf("who leaves is told %v after %s", err, time.Since(began))
		}
	})
}
