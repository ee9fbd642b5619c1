package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// startTries is how often a start is tried whose answer was lost with the shim.
const startTries = 3

// errUnsettled is why a start is not known to have failed.
var errUnsettled = errors.New("it is not known whether it runs")

// StartContainer runs a created container. If its command can't be run, it ends
// as exited with reason StartError and the cause as its message. If anything
// else is in the way, it stays created: it never ran, and nothing of it does. Where
// nobody can tell, its state is unknown until the shim can be asked (see settle).
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
	if err := s.settle(ctx, c); err != nil {
		return fmt.Errorf("cannot start container %q: %w", c.config.GetMetadata().GetName(), err)
	}
	if st := c.state(); st != store.ContainerCreated {
		return coded(codes.FailedPrecondition, "cannot start container %s: it is %s", c.id, st)
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
		err = fmt.Errorf("cannot start container %q: %w", c.config.GetMetadata().GetName(), err)
		var cannotRun *shim.StartError
		if errors.As(err, &cannotRun) {
			return errors.Join(err, s.startFailed(ctx, c, cannotRun))
		}
		c.mu.Lock()
		c.unsettled = errors.Is(err, errUnsettled)
		c.mu.Unlock()
		c.setStarting(false)
		return err
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

// start lets the shim make and start the container. Where the answer is lost
// with the shim, the next one says what became of it. After an error other than
// a *shim.StartError or errUnsettled it has not run and will not.
func (s *Service) start(ctx context.Context, c *container) (time.Time, error) {
	var lost error
	made := false
	for range startTries {
		var err error
		if !made {
			err = s.makeInShim(ctx, c)
		}
		if err == nil {
			var startedAt time.Time
			if startedAt, err = s.cfg.Shim.Start(ctx, c.id); err == nil {
				return startedAt, nil
			}
		}
		var cannotRun *shim.StartError
		if errors.As(err, &cannotRun) {
			return time.Time{}, err
		}
		found, ferr := s.afterLostStart(ctx, c.id)
		switch {
		case ferr != nil:
			return time.Time{}, errors.Join(err, ferr)
		case found.ran:
			return found.StartedAt, nil
		case !errors.Is(err, shim.ErrGone) || ctx.Err() != nil:
			return time.Time{}, errors.Join(err, s.unmakeInShim(ctx, c.id))
		}
		s.log.Info("the shim was lost during a start, trying again", "id", c.id, "made", found.made)
		lost, made = err, found.made
		if made {
			continue
		}
		if err := s.unmakeInShim(ctx, c.id); err != nil {
			return time.Time{}, errors.Join(lost, err)
		}
	}
	return time.Time{}, errors.Join(lost, s.unmakeInShim(ctx, c.id))
}

// makeInShim makes the container, up to the process that waits for its start.
func (s *Service) makeInShim(ctx context.Context, c *container) error {
	rec := c.record()
	rootfs := make([]shim.Mount, len(rec.Rootfs))
	for i, m := range rec.Rootfs {
		rootfs[i] = shim.Mount(m)
	}
	sb, err := s.sandbox(c.sandboxID)
	if err != nil {
		return err
	}
	h, err := s.handler(sb.record().Handler)
	if err != nil {
		return err
	}
	created, err := s.cfg.Shim.Create(ctx, shim.CreateRequest{
		ID:          c.id,
		Program:     h.program,
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
		return err
	}
	c.mu.Lock()
	c.pid = created.PID
	c.mu.Unlock()
	return nil
}

// lostStart is what the shim says of a start whose answer was lost.
type lostStart struct {
	made, ran bool // neither: the shim has no such container, or one that can't be started
	shim.Status
}

// afterLostStart finds out whether a start took effect. It asks also when ctx has
// ended.
func (s *Service) afterLostStart(ctx context.Context, id string) (lostStart, error) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	list, err := s.cfg.Shim.List(asking)
	if err != nil {
		return lostStart{}, fmt.Errorf("%w: %w", errUnsettled, err)
	}
	for _, st := range list {
		if st.ID == id {
			return lostStart{made: st.State == shim.Created, ran: hasRun(st), Status: st}, nil
		}
	}
	return lostStart{}, nil
}

// hasRun says that the container's command was run. A first process that is
// killed before its start ends without.
func hasRun(st shim.Status) bool {
	return st.State == shim.Running || st.State == shim.Exited && !st.StartedAt.IsZero()
}

// unmakeInShim removes what the shim has of a container that never ran. Where it
// can't, the start may still take effect: a shim completes what one before began. One
// that has run after all stays, and the error is shim.ErrState, too.
func (s *Service) unmakeInShim(ctx context.Context, id string) error {
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := s.cfg.Shim.DeleteNotRun(undoing, id); err != nil {
		return fmt.Errorf("%w: %w", errUnsettled, err)
	}
	return nil
}

// settle finds out what became of a start whose answer was lost when nobody could
// be asked. It needs the container's turn, and does nothing for others.
func (s *Service) settle(ctx context.Context, c *container) error {
	if !c.isUnsettled() {
		return nil
	}
	found, err := s.afterLostStart(ctx, c.id)
	if err != nil {
		return err
	}
	if !found.ran {
		err := s.unmakeInShim(ctx, c.id)
		if errors.Is(err, shim.ErrState) { // it began to run since
			found, err = s.afterLostStart(ctx, c.id)
		}
		if err != nil {
			return err
		}
	}
	if !found.ran {
		c.mu.Lock()
		c.unsettled = false
		c.mu.Unlock()
		s.emit(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, c.id, c.sandboxID)
		return nil
	}
	err = s.changeContainer(c, func(r *store.Container) {
		r.State, r.StartedAt = store.ContainerRunning, found.StartedAt
		c.pid, c.unsettled = found.PID, false
	})
	s.emit(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, c.sandboxID)
	if found.Exit != nil {
		err = errors.Join(err, s.recordExit(ctx, c, *found.Exit))
	}
	return err
}

// settleNow is settle for those who have not got the turn: whoever has it does so.
func (s *Service) settleNow(ctx context.Context, c *container) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
		return s.settle(ctx, c)
	default:
		return nil
	}
}

// startFailed makes sure that nothing runs and records why.
func (s *Service) startFailed(ctx context.Context, c *container, cause error) error {
	err := s.unmakeInShim(ctx, c.id)
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
