package cri

import (
	"context"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// shimEvent takes in one event. It doesn't wait for anything slow.
func (s *Service) shimEvent(ctx context.Context, e shim.Event) {
	if e.Kind == shim.Replayed {
		// A new connection, perhaps to a new shim: what it has forgotten it did
		// not replay.
		s.background.Go(func() { s.reobserveNow(ctx) })
		return
	}
	if e.Kind != shim.ContainerExited || e.Exit == nil {
		return // starts are known from the call, OOM kills from the exit
	}
	s.mu.RLock()
	c, known := s.containers[e.ID]
	sb := s.sandboxes[strings.TrimSuffix(e.ID, "-pause")]
	s.mu.RUnlock()
	switch {
	case known:
		if c.putOff(*e.Exit) {
			return
		}
		if err := s.recordExit(ctx, c, *e.Exit); err != nil {
			s.log.Error("cannot record the end of a container", "id", e.ID, "err", err)
		}
	case sb != nil:
		if err := s.pauseExited(sb); err != nil {
			s.log.Error("cannot record the end of a sandbox", "id", sb.id, "err", err)
		}
	}
}

// putOff keeps an exit for the end of the start under way, if there is one.
func (c *container) putOff(e shim.Exit) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starting {
		c.early = &e
	}
	return c.starting
}

// recordExit makes a running container an exited one. Only then, and in the
// background, is the shim told to forget it: until the exit is written down the
// shim reports it again to whoever asks.
func (s *Service) recordExit(ctx context.Context, c *container, e shim.Exit) error {
	first := false
	err := s.changeContainer(c, func(r *store.Container) {
		if first = r.State == store.ContainerRunning; first {
			applyExit(r, e)
			// Here, so that who waits for the end can't tell of more before.
			s.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.id, c.sandboxID)
		}
	})
	if !first {
		return nil
	}
	rec := c.record()
	s.log.Debug("container exited", "id", c.id, "code", rec.ExitCode, "reason", exitReason(rec))
	if err != nil {
		return err
	}
	s.background.Go(func() {
		deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		if err := s.cfg.Shim.Delete(deleting, c.id); err != nil {
			s.log.Warn("cannot clear up after a container, its removal will try again", "id", c.id, "err", err)
		}
	})
	return nil
}

// applyExit writes an exit into a record.
func applyExit(r *store.Container, e shim.Exit) {
	r.State = store.ContainerExited
	r.FinishedAt = e.At
	switch {
	case !e.Known:
		r.ExitCode = UnknownExitCode
		r.Reason = ReasonUnknown
		r.Message = "The container ended while nobody could learn its exit code: berth-shim was not running, or the container was lost."
	case e.OOMKilled:
		r.ExitCode, r.Signal = e.Code, e.Signal
		r.Reason = reasonOOMKilled
	default:
		r.ExitCode, r.Signal = e.Code, e.Signal
	}
}
