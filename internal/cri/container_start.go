package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// StartContainer runs a created container. If it can't, the container ends as
// exited with reason StartError and the cause as its message, and nothing of it
// runs.
func (s *Service) StartContainer(ctx context.Context, id string) error {
	c, err := s.container(id)
	if err != nil {
		return err
	}
	release, err := c.turn.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if st := c.state(); st != store.ContainerCreated {
		return status.Errorf(codes.FailedPrecondition, "cannot start container %s: it is %s", c.id, st)
	}
	// First say so, then look: who stops the sandbox does it the other way round,
	// so that one of the two notices.
	c.setStarting(true)
	if _, err := s.readySandbox(c.sandboxID); err != nil {
		c.setStarting(false)
		return fmt.Errorf("cannot start container %s: %w", c.id, err)
	}
	startedAt, err := s.start(ctx, c)
	if err != nil {
		return errors.Join(fmt.Errorf("cannot start container %q: %w", c.config.GetMetadata().GetName(), err), s.startFailed(ctx, c, err))
	}
	err = s.changeContainer(c, func(r *store.Container) {
		r.State, r.StartedAt = store.ContainerRunning, startedAt
	})
	s.emit(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, c.sandboxID)
	if exit := c.setStarting(false); exit != nil {
		err = errors.Join(err, s.recordExit(ctx, c, *exit))
	}
	return err
}

// setStarting opens or closes the time in which exits are put off; closing it
// returns the one that came.
func (c *container) setStarting(on bool) *shim.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	early := c.early
	c.starting, c.early = on, nil
	return early
}

func (s *Service) start(ctx context.Context, c *container) (time.Time, error) {
	rec := c.record()
	rootfs := make([]shim.Mount, len(rec.Rootfs))
	for i, m := range rec.Rootfs {
		rootfs[i] = shim.Mount(m)
	}
	created, err := s.cfg.Shim.Create(ctx, shim.CreateRequest{
		ID:          c.id,
		Bundle:      s.containerDir(c.id),
		Rootfs:      rootfs,
		LogPath:     rec.LogPath,
		LogMaxBytes: s.cfg.LogMaxBytes,
		LogMaxFiles: s.cfg.LogMaxFiles,
		Stdin:       c.config.GetStdin(),
		StdinOnce:   c.config.GetStdinOnce(),
		TTY:         c.config.GetTty(),
	})
	if err != nil {
		return time.Time{}, err
	}
	c.mu.Lock()
	c.pid = created.PID
	c.mu.Unlock()
	startedAt, err := s.cfg.Shim.Start(ctx, c.id)
	if errors.Is(err, shim.ErrGone) {
		return s.startedAfterAll(ctx, c.id, err)
	}
	return startedAt, err
}

// startedAfterAll finds out whether a start took effect of which the answer was
// lost.
func (s *Service) startedAfterAll(ctx context.Context, id string, lost error) (time.Time, error) {
	list, err := s.cfg.Shim.List(ctx)
	if err != nil {
		return time.Time{}, errors.Join(lost, err)
	}
	for _, st := range list {
		if st.ID == id && st.State != shim.Created {
			return st.StartedAt, nil
		}
	}
	return time.Time{}, lost
}

// startFailed makes sure that nothing runs and records why.
func (s *Service) startFailed(ctx context.Context, c *container, cause error) error {
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	err := s.cfg.Shim.Delete(undoing, c.id)
	c.setStarting(false)
	now := time.Now()
	err = errors.Join(err, s.changeContainer(c, func(r *store.Container) {
		r.State = store.ContainerExited
		r.FinishedAt = now
		r.ExitCode = startErrorExitCode
		r.Reason = reasonStartError
		r.Message = cause.Error()
	}))
	s.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.id, c.sandboxID)
	return err
}
