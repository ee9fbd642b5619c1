package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/shimpb"
)

// service answers the protocol's calls. It only translates.
type service struct{ s *Server }

var _ shimpb.ShimService = (*service)(nil)

func (v *service) Hello(context.Context, *shimpb.HelloRequest) (*shimpb.HelloResponse, error) {
	return &shimpb.HelloResponse{
		Protocol: shim.Protocol, MinProtocol: shim.MinProtocol, Pid: int32(os.Getpid()), Version: v.s.cfg.Version,
		Build: v.s.cfg.Build,
	}, nil
}

func (v *service) Create(ctx context.Context, r *shimpb.CreateRequest) (*shimpb.CreateResponse, error) {
	defer v.s.settled()
	c, err := v.s.create(ctx, r)
	var se *shim.StartError
	if errors.As(err, &se) {
		return &shimpb.CreateResponse{Failure: &shimpb.StartFailure{Reason: se.Reason, Message: se.Message}}, nil
	}
	if err != nil {
		return nil, shim.ToRPC(err)
	}
	st := c.state()
	return &shimpb.CreateResponse{Pid: int32(st.PID), CreatedAt: st.CreatedAt.UnixNano()}, nil
}

func (v *service) Start(_ context.Context, r *shimpb.StartRequest) (*shimpb.StartResponse, error) {
	c, err := v.s.find(r.Id)
	if err != nil {
		return nil, shim.ToRPC(err)
	}
	at, err := c.start()
	if err != nil {
		return nil, shim.ToRPC(err)
	}
	return &shimpb.StartResponse{StartedAt: at.UnixNano()}, nil
}

func (v *service) Signal(_ context.Context, r *shimpb.SignalRequest) (*shimpb.Empty, error) {
	c, err := v.s.find(r.Id)
	if err == nil {
		err = c.signal(syscall.Signal(r.Signal), r.All)
	}
	return &shimpb.Empty{}, shim.ToRPC(err)
}

// signal sends sig to the first process, or to all of the container's cgroup.
func (c *container) signal(sig syscall.Signal, all bool) error {
	if sig < 1 || sig > 64 {
		return fmt.Errorf("cannot send signal %d: there is none", sig)
	}
	st := c.state()
	if c.proc == nil || st.PID == 0 {
		return nil
	}
	if st.Phase == starting && sig != syscall.SIGKILL {
		// It does not run the command yet, for which the signal is.
		c.lock()()
	}
	if !all {
		return c.driver.kill(sig)
	}
	if sig == syscall.SIGKILL {
		return killCgroup(st.CgroupPaths)
	}
	m, err := cgroupManager(st.CgroupPaths)
	if err != nil {
		return err
	}
	if !m.Exists() {
		return nil
	}
	pids, err := m.GetAllPids()
	if err != nil {
		return fmt.Errorf("cannot list processes of container %q: %w", c.id, err)
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, sig); err != nil && err != unix.ESRCH {
			return fmt.Errorf("cannot signal process %d of container %q: %w", pid, c.id, err)
		}
	}
	return nil
}

func (v *service) Delete(_ context.Context, r *shimpb.DeleteRequest) (*shimpb.Empty, error) {
	c, err := v.s.find(r.Id)
	if err == nil {
		err = c.delete(r.NotRun)
	}
	return &shimpb.Empty{}, shim.ToRPC(err)
}

func (v *service) List(context.Context, *shimpb.Empty) (*shimpb.ListResponse, error) {
	resp := &shimpb.ListResponse{}
	for _, c := range v.s.all() {
		if c.state().Phase == starting {
			c.awaitStart() // whoever asks wants to know whether it runs
		}
		st, ok := c.status()
		if !ok {
			continue
		}
		p := &shimpb.Status{
			Id: st.ID, Pid: int32(st.PID), State: shimpb.State(st.State),
			CreatedAt: st.CreatedAt.UnixNano(), Exit: exitToPB(st.Exit),
		}
		if !st.StartedAt.IsZero() {
			p.StartedAt = st.StartedAt.UnixNano()
		}
		resp.Containers = append(resp.Containers, p)
	}
	return resp, nil
}

func (v *service) Wait(ctx context.Context, r *shimpb.WaitRequest) (*shimpb.ExitStatus, error) {
	c, err := v.s.find(r.Id)
	if err != nil {
		return nil, shim.ToRPC(err)
	}
	ctx, done := v.s.cancellable(ctx, r.Call)
	defer done()
	select {
	case <-c.exited:
	case <-ctx.Done():
		return nil, shim.ToRPC(ctx.Err())
	}
	st := c.state()
	if st.Exit == nil { // removed before it ran
		return nil, shim.ToRPC(c.notFound())
	}
	return exitToPB(st.Exit.exit()), nil
}

func (v *service) Events(ctx context.Context, _ *shimpb.Empty, stream shimpb.Shim_EventsServer) error {
	sub := v.s.events.subscribe()
	defer v.s.events.unsubscribe(sub)
	// After subscribing, so that none is missed between; one may come twice.
	for _, c := range v.s.all() {
		if st, ok := c.status(); ok && st.State == shim.Exited {
			e := shim.Event{Kind: shim.ContainerExited, ID: st.ID, At: st.Exit.At, Exit: st.Exit}
			if err := stream.Send(eventToPB(e)); err != nil {
				return err
			}
		}
	}
	if err := stream.Send(&shimpb.Event{Kind: shimpb.Event_KIND_REPLAYED}); err != nil {
		return err
	}
	for {
		events, ok := v.s.events.next(ctx, sub)
		for _, e := range events {
			if err := stream.Send(eventToPB(e)); err != nil {
				return err
			}
		}
		if !ok {
			return ctx.Err()
		}
	}
}

func (v *service) Exec(ctx context.Context, r *shimpb.ExecRequest) (*shimpb.ExecResponse, error) {
	defer v.s.settled()
	files, c, err := v.streams(ctx, r.Id, r.Token, r.Stdin || r.Stdout || r.Stderr || r.Tty)
	if err != nil {
		return nil, shim.ToRPC(err)
	}
	e, err := c.exec(r, files)
	var se *shim.StartError
	switch {
	case errors.As(err, &se):
		return &shimpb.ExecResponse{Failure: &shimpb.StartFailure{Reason: se.Reason, Message: se.Message}}, nil
	case err != nil:
		return nil, shim.ToRPC(err)
	}
	begun := v.s.sessions.begin(r.Token, e)
	if r.BeginOnly {
		return &shimpb.ExecResponse{Begun: true}, nil
	}
	return v.s.sessions.await(ctx, begun), nil
}

func (v *service) Attach(ctx context.Context, r *shimpb.AttachRequest) (*shimpb.AttachResponse, error) {
	files, c, err := v.streams(ctx, r.Id, r.Token, r.Stdin || r.Stdout || r.Stderr)
	if err != nil {
		return nil, shim.ToRPC(err)
	}
	a, err := c.attach(r, files)
	if err != nil {
		return nil, shim.ToRPC(err)
	}
	begun := v.s.sessions.begin(r.Token, a)
	if !r.BeginOnly {
		v.s.sessions.await(ctx, begun)
	}
	return &shimpb.AttachResponse{Begun: r.BeginOnly}, nil
}

// streams waits for the descriptors that belong to a call, if any, and finds the
// container that it is for.
func (v *service) streams(ctx context.Context, id string, token uint64, sent bool) (files []*os.File, c *container, err error) {
	if sent {
		ctx, done := v.s.cancellable(ctx, token)
		defer done()
		if files, err = v.s.fds.take(ctx, token); err != nil {
			return nil, nil, err
		}
	}
	if c, err = v.s.find(id); err != nil {
		closeFiles(files)
		return nil, nil, err
	}
	return files, c, nil
}

func (v *service) Await(ctx context.Context, r *shimpb.AwaitRequest) (*shimpb.ExecResponse, error) {
	defer v.s.settled()
	se := v.s.sessions.find(r.Token)
	if se == nil {
		return nil, shim.ToRPC(fmt.Errorf("exec or attachment %x: %w", r.Token, shim.ErrNotFound))
	}
	return v.s.sessions.await(ctx, se), nil
}

func (v *service) Cancel(_ context.Context, r *shimpb.CancelRequest) (*shimpb.Empty, error) {
	v.s.mu.Lock()
	cancel := v.s.calls[r.Call]
	v.s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if se := v.s.sessions.find(r.Call); se != nil {
		se.cancel()
	}
	return &shimpb.Empty{}, nil
}

func (v *service) Resize(_ context.Context, r *shimpb.ResizeRequest) (*shimpb.Empty, error) {
	c, err := v.s.find(r.Id)
	if err == nil {
		err = c.resize(shim.Size{Width: uint16(r.Width), Height: uint16(r.Height)})
	}
	return &shimpb.Empty{}, shim.ToRPC(err)
}

func (c *container) resize(size shim.Size) error {
	c.stdinMu.Lock()
	defer c.stdinMu.Unlock()
	if !c.state().TTY || c.stdin == nil {
		return fmt.Errorf("container %q has no terminal: %w", c.id, shim.ErrState)
	}
	return shim.ResizeTerminal(c.stdin, size)
}

func (v *service) ReopenLog(_ context.Context, r *shimpb.ContainerRequest) (*shimpb.Empty, error) {
	c, err := v.s.find(r.Id)
	if err == nil && c.log != nil {
		err = c.log.reopen()
	}
	return &shimpb.Empty{}, shim.ToRPC(err)
}

func (v *service) Update(_ context.Context, r *shimpb.UpdateRequest) (*shimpb.Empty, error) {
	c, err := v.s.find(r.Id)
	if err == nil {
		err = c.update(r.Resources)
	}
	return &shimpb.Empty{}, shim.ToRPC(err)
}

func (v *service) Stats(_ context.Context, r *shimpb.StatsRequest) (*shimpb.StatsResponse, error) {
	if r.Cgroup != "" {
		st, err := groupStats(r.Cgroup)
		return st, shim.ToRPC(err)
	}
	c, err := v.s.find(r.Id)
	if err != nil {
		return nil, shim.ToRPC(err)
	}
	st, err := c.stats(r.Detailed)
	return st, shim.ToRPC(err)
}

func (v *service) Shutdown(context.Context, *shimpb.Empty) (*shimpb.Empty, error) {
	v.s.mu.Lock()
	n := len(v.s.containers)
	v.s.mu.Unlock()
	if n > 0 {
		return nil, shim.ToRPC(fmt.Errorf("cannot shut down: there are %d containers: %w", n, shim.ErrState))
	}
	v.s.once.Do(func() { close(v.s.shutdown) })
	return &shimpb.Empty{}, nil
}

func (v *service) Upgrade(ctx context.Context, r *shimpb.UpgradeRequest) (*shimpb.Empty, error) {
	return &shimpb.Empty{}, shim.ToRPC(v.s.upgrade(ctx, r.Binary))
}

func exitToPB(e *shim.Exit) *shimpb.ExitStatus {
	if e == nil {
		return nil
	}
	return &shimpb.ExitStatus{Code: e.Code, Signal: e.Signal, At: e.At.UnixNano(), OomKilled: e.OOMKilled, Known: e.Known}
}

func eventToPB(e shim.Event) *shimpb.Event {
	return &shimpb.Event{Kind: shimpb.Event_Kind(e.Kind), Id: e.ID, At: e.At.UnixNano(), Exit: exitToPB(e.Exit)}
}
