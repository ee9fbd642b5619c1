package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim/shimpb"
	"github.com/berth-run/berth/internal/socket"
)

// Client speaks to the shim of one run directory. It is safe for concurrent
// use. When the shim is restarted it connects again; calls that are safe to
// repeat (all but Create, Start, Exec and Attach) are repeated.
type Client struct {
	cfg EnsureConfig

	dialing  chan struct{} // holds one token: who has it may dial
	mayStart atomic.Bool   // a shim, when none answers

	// gate is shut during an upgrade, which would cut calls off: they wait outside.
	gate Gate

	mu     sync.Mutex
	conn   *ttrpc.Client         // nil: not connected
	peer   *shimpb.HelloResponse // who is, or was, at the other end; not nil once connected
	closed bool
	// terminals of the execs under way in this client, by container and exec id.
	terminals map[[2]string]*os.File
}

func newClient(cfg EnsureConfig) *Client {
	c := &Client{cfg: cfg, dialing: make(chan struct{}, 1), terminals: make(map[[2]string]*os.File)}
	c.dialing <- struct{}{}
	c.mayStart.Store(cfg.Binary != "")
	return c
}

// Dial connects to the shim that serves runDir. The client connects again when
// that shim is replaced, but never starts one.
func Dial(ctx context.Context, runDir string, log *slog.Logger) (*Client, error) {
	cfg := EnsureConfig{RunDir: runDir, Log: log}
	cfg.setDefaults()
	c := newClient(cfg)
	if _, err := c.connection(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the connection. Calls under way return ErrGone; the shim and its
// containers go on.
func (c *Client) Close() error {
	c.mu.Lock()
	conn := c.conn
	c.conn, c.closed = nil, true
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// dial makes one connection and checks that both sides understand each other.
func (c *Client) dial(ctx context.Context, opts ...ttrpc.ClientOpts) (*ttrpc.Client, *shimpb.HelloResponse, error) {
	nc, err := socket.Dial(ctx, c.cfg.path(SocketName))
	if err != nil {
		return nil, nil, err
	}
	conn := ttrpc.NewClient(nc, opts...)
	hctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	hello, err := shimpb.NewShimClient(conn).Hello(hctx, &shimpb.HelloRequest{Protocol: Protocol})
	if err = fromRPC(err); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = &MuteError{PID: listener(nc)}
		}
		conn.Close()
		return nil, nil, err
	}
	if err := CheckProtocol(hello.Protocol, hello.MinProtocol); err != nil {
		conn.Close()
		return nil, nil, &protocolError{fmt.Errorf("cannot use the shim at %s (version %s, pid %d): %w", c.cfg.RunDir, hello.Version, hello.Pid, err)}
	}
	return conn, hello, nil
}

// protocolError is one that trying again does not cure.
type protocolError struct{ error }

// connection returns the connection in use, or makes one, with back-off from
// 5 ms to 1 s, until ctx or EnsureConfig.Patience is over. If the client may
// start shims it starts one when none answers.
func (c *Client) connection(ctx context.Context) (*ttrpc.Client, error) {
	if conn, err := c.current(); conn != nil || err != nil {
		return conn, err
	}
	select {
	case <-c.dialing:
		defer func() { c.dialing <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	giveUp := time.Now().Add(c.cfg.Patience)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if conn, err := c.current(); conn != nil || err != nil {
			return conn, err
		}
		conn, hello, err := c.dial(ctx)
		if err == nil {
			return c.use(conn, hello)
		}
		var perr *protocolError
		var mute *MuteError
		if errors.As(err, &perr) || errors.As(err, &mute) {
			return nil, err
		}
		if c.mayStart.Load() {
			if serr := c.startShim(ctx); serr != nil {
				err = serr
			} else if conn, hello, err = c.dial(ctx); err == nil {
				return c.use(conn, hello)
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if time.Now().After(giveUp) {
			return nil, fmt.Errorf("cannot connect to the shim at %s: %w", c.cfg.RunDir, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Client) current() (*ttrpc.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	return c.conn, nil
}

func (c *Client) use(conn *ttrpc.Client, hello *shimpb.HelloResponse) (*ttrpc.Client, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		conn.Close()
		return nil, net.ErrClosed
	}
	c.conn, c.peer = conn, hello
	c.mu.Unlock()
	return conn, nil
}

// drop forgets a connection that turned out to be dead.
func (c *Client) drop(conn *ttrpc.Client) {
	c.mu.Lock()
	if c.conn == conn {
		c.conn = nil
	}
	c.mu.Unlock()
	conn.Close()
}

// needs says that the shim is too old for a call that began with protocol.
func (c *Client) needs(ctx context.Context, protocol uint32, what string) error {
	if _, err := c.connection(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	peer := c.peer
	c.mu.Unlock()
	if peer.Protocol < protocol {
		return fmt.Errorf("cannot %s: the shim (version %s, pid %d) speaks protocol %d, that needs %d: %w",
			what, peer.Version, peer.Pid, peer.Protocol, protocol, ErrUnsupported)
	}
	return nil
}

// once makes a call that must not be repeated. If the connection turns out to
// have died before anything was sent, that is not told apart: ErrGone. It waits
// while the shim is upgraded.
func once[T any](ctx context.Context, c *Client, f func(shimpb.ShimClient) (T, error)) (T, error) {
	leave, err := c.gate.Enter(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	defer leave()
	return ask(ctx, c, f)
}

// repeat is once for a call that may be repeated, again when the connection is lost.
func repeat[T any](ctx context.Context, c *Client, f func(shimpb.ShimClient) (T, error)) (T, error) {
	leave, err := c.gate.Enter(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	defer leave()
	return askAgain(ctx, c, f)
}

// ask makes a call whether the shim is upgraded or not: one that may take for ever,
// and that an upgrade may cut off.
func ask[T any](ctx context.Context, c *Client, f func(shimpb.ShimClient) (T, error)) (T, error) {
	var zero T
	conn, err := c.connection(ctx)
	if err != nil {
		return zero, err
	}
	r, err := f(shimpb.NewShimClient(conn))
	if err = fromRPC(err); err != nil {
		if errors.Is(err, ErrGone) {
			c.drop(conn)
		}
		return zero, err
	}
	return r, nil
}

// askAgain asks again when the connection is lost.
func askAgain[T any](ctx context.Context, c *Client, f func(shimpb.ShimClient) (T, error)) (T, error) {
	for {
		r, err := ask(ctx, c, f)
		if !errors.Is(err, ErrGone) || ctx.Err() != nil {
			return r, err
		}
	}
}

// Create makes a container: its namespaces, cgroup and mounts, and a first
// process that waits for Start. It returns a *StartError if that process could
// not be prepared, ErrExists if the id is taken. Nothing is left on an error
// other than ErrGone.
func (c *Client) Create(ctx context.Context, r CreateRequest) (CreateResult, error) {
	req := &shimpb.CreateRequest{
		Id: r.ID, Bundle: r.Bundle, LogPath: r.LogPath, LogMaxBytes: r.LogMaxBytes, LogMaxFiles: int32(r.LogMaxFiles),
		Stdin: r.Stdin, StdinOnce: r.StdinOnce, Tty: r.TTY,
	}
	for _, m := range r.Rootfs {
		req.Rootfs = append(req.Rootfs, &shimpb.Mount{Type: m.Type, Source: m.Source, Options: m.Options})
	}
	if p := r.Program; p != nil {
		// An older shim would run it by libcontainer.
		if err := c.needs(ctx, 3, "run containers by "+p.Path); err != nil {
			return CreateResult{}, err
		}
		req.Program = &shimpb.Program{Path: p.Path, Args: p.Args}
	}
	resp, err := once(ctx, c, func(s shimpb.ShimClient) (*shimpb.CreateResponse, error) { return s.Create(ctx, req) })
	if err != nil {
		return CreateResult{}, err
	}
	if f := resp.Failure; f != nil {
		return CreateResult{}, &StartError{Reason: f.Reason, Message: f.Message}
	}
	return CreateResult{PID: int(resp.Pid), CreatedAt: timeOf(resp.CreatedAt)}, nil
}

// Start lets a created container run and returns when its command is about to
// be executed. Starting a running container does nothing.
func (c *Client) Start(ctx context.Context, id string) (startedAt time.Time, err error) {
	resp, err := once(ctx, c, func(s shimpb.ShimClient) (*shimpb.StartResponse, error) {
		return s.Start(ctx, &shimpb.StartRequest{Id: id})
	})
	if err != nil {
		return time.Time{}, err
	}
	return timeOf(resp.StartedAt), nil
}

// Signal sends sig to the container's first process, or with all to every
// process in its cgroup. It does nothing if the container has ended.
func (c *Client) Signal(ctx context.Context, id string, sig syscall.Signal, all bool) error {
	_, err := repeat(ctx, c, func(s shimpb.ShimClient) (*shimpb.Empty, error) {
		return s.Signal(ctx, &shimpb.SignalRequest{Id: id, Signal: int32(sig), All: all})
	})
	return err
}

// Delete kills what is left of the container, removes its cgroup and the mounts
// of CreateRequest.Rootfs, and forgets the id. An unknown id is no error.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.delete(ctx, &shimpb.DeleteRequest{Id: id})
}

// DeleteNotRun is Delete of a container whose command was not run: otherwise it
// does nothing and returns ErrState. A start under way ends first. A shim of
// protocol 1 can't do that at once: what starts at that moment is deleted.
func (c *Client) DeleteNotRun(ctx context.Context, id string) error {
	err := c.needs(ctx, 2, "delete only what was not run")
	if err == nil {
		return c.delete(ctx, &shimpb.DeleteRequest{Id: id, NotRun: true})
	}
	if !errors.Is(err, ErrUnsupported) {
		return err
	}
	list, err := c.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.ID == id && (s.State == Running || !s.StartedAt.IsZero()) {
			return fmt.Errorf("container %q is %s: %w", id, s.State, ErrState)
		}
	}
	return c.Delete(ctx, id)
}

func (c *Client) delete(ctx context.Context, r *shimpb.DeleteRequest) error {
	_, err := repeat(ctx, c, func(s shimpb.ShimClient) (*shimpb.Empty, error) { return s.Delete(ctx, r) })
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// List returns every container the shim knows, in no order.
func (c *Client) List(ctx context.Context) ([]Status, error) {
	resp, err := repeat(ctx, c, func(s shimpb.ShimClient) (*shimpb.ListResponse, error) {
		return s.List(ctx, &shimpb.Empty{})
	})
	if err != nil {
		return nil, err
	}
	list := make([]Status, 0, len(resp.Containers))
	for _, s := range resp.Containers {
		list = append(list, Status{
			ID: s.Id, PID: int(s.Pid), State: State(s.State),
			CreatedAt: timeOf(s.CreatedAt), StartedAt: timeOf(s.StartedAt), Exit: exitPtr(s.Exit),
		})
	}
	return list, nil
}

// Wait returns when the container has ended and its output is in the log.
func (c *Client) Wait(ctx context.Context, id string) (Exit, error) {
	call := newToken()
	defer c.cancelWith(ctx, call)()
	resp, err := askAgain(ctx, c, func(s shimpb.ShimClient) (*shimpb.ExitStatus, error) {
		return s.Wait(ctx, &shimpb.WaitRequest{Id: id, Call: call})
	})
	if err != nil {
		return Exit{}, err
	}
	return exitOf(resp), nil
}

// Resize sets the size of a terminal: the container's if execID is empty, else
// that of an exec under way in this client.
func (c *Client) Resize(ctx context.Context, id, execID string, w, h uint16) error {
	if execID != "" {
		c.mu.Lock()
		f := c.terminals[[2]string{id, execID}]
		c.mu.Unlock()
		err := os.ErrClosed
		if f != nil {
			err = ResizeTerminal(f, Size{w, h}) // it may end meanwhile
		}
		if errors.Is(err, os.ErrClosed) {
			err = fmt.Errorf("exec %q of container %q has no terminal here: %w", execID, id, ErrNotFound)
		}
		return err
	}
	_, err := repeat(ctx, c, func(s shimpb.ShimClient) (*shimpb.Empty, error) {
		return s.Resize(ctx, &shimpb.ResizeRequest{Id: id, Width: uint32(w), Height: uint32(h)})
	})
	return err
}

// ReopenLog opens the log file again by its path, after somebody renamed it.
func (c *Client) ReopenLog(ctx context.Context, id string) error {
	_, err := repeat(ctx, c, func(s shimpb.ShimClient) (*shimpb.Empty, error) {
		return s.ReopenLog(ctx, &shimpb.ContainerRequest{Id: id})
	})
	return err
}

// Update sets the resource limits of a container that has not ended. Fields
// that are nil or empty are left as they are.
func (c *Client) Update(ctx context.Context, id string, r *specs.LinuxResources) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot encode resources of container %q: %w", id, err)
	}
	_, err = repeat(ctx, c, func(s shimpb.ShimClient) (*shimpb.Empty, error) {
		return s.Update(ctx, &shimpb.UpdateRequest{Id: id, Resources: b})
	})
	return err
}

// Shutdown ends the shim and closes the client. It is refused with ErrState, and
// the client stays open, while containers exist.
func (c *Client) Shutdown(ctx context.Context) error {
	// Before the shim goes, so that nothing of this client starts it again.
	c.mayStart.Store(false)
	_, err := once(ctx, c, func(s shimpb.ShimClient) (*shimpb.Empty, error) { return s.Shutdown(ctx, &shimpb.Empty{}) })
	if err != nil && !errors.Is(err, ErrGone) { // ErrGone: it ended before it could answer
		c.mayStart.Store(c.cfg.Binary != "")
		return err
	}
	return c.Close()
}
