package cri

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// killPatience is how long a killed container may take to be gone. Longer means
// that its processes hang in the kernel.
const killPatience = 2 * time.Minute

// askEvery is how often the shim is asked whether a killed container is gone.
const askEvery = 2 * time.Second

// StopContainer sends the container's stop signal, waits for timeoutSeconds, and
// then kills all of its processes; with a timeout of 0 at once. It succeeds if
// the container does not run. Several calls may be under way: the shortest
// timeout decides.
func (s *Service) StopContainer(ctx context.Context, id string, timeoutSeconds int64) error {
	c, err := s.container(id)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.stopContainer(ctx, c, time.Duration(max(timeoutSeconds, 0))*time.Second)
}

func (s *Service) stopContainer(ctx context.Context, c *container, timeout time.Duration) error {
	if err := s.awaitStart(ctx, c); err != nil {
		return err
	}
	if c.state() != store.ContainerRunning {
		return nil
	}
	if timeout > 0 {
		first, done := c.beginStop()
		defer done()
		if first {
			sig := stopSignal(c.config.GetStopSignal(), c.record().StopSignal)
			if err := s.signal(ctx, c, sig, false); err != nil {
				return err
			}
		}
		grace := time.NewTimer(timeout)
		defer grace.Stop()
		select {
		case <-c.exited:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("cannot stop container %s: %w", c.id, ctx.Err())
		case <-grace.C:
		}
	}
	if err := s.signal(ctx, c, syscall.SIGKILL, true); err != nil {
		return err
	}
	return s.awaitGone(ctx, c)
}

// beginStop says whether nobody else is about to stop the container with grace: one
// of them sends the signal, which to some programs means something else when it comes
// twice.
func (c *container) beginStop() (first bool, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping++
	return c.stopping == 1, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stopping--
	}
}

// awaitGone waits for a killed container. The event of its end may be lost, so
// now and then it asks.
func (s *Service) awaitGone(ctx context.Context, c *container) error {
	patience := time.NewTimer(killPatience)
	defer patience.Stop()
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		select {
		case <-c.exited:
			return nil
		case <-ask.C:
			s.reobserveNow(ctx)
		case <-ctx.Done():
			return fmt.Errorf("cannot stop container %s: it was killed but is not gone: %w", c.id, ctx.Err())
		case <-patience.C:
			return fmt.Errorf("cannot stop container %s: it was killed but is not gone after %s", c.id, killPatience)
		}
	}
}

// awaitStart waits for a start under way: it can't be stopped half way. Of one whose
// outcome is not known it finds out.
func (s *Service) awaitStart(ctx context.Context, c *container) error {
	c.mu.Lock()
	starting := c.starting || c.unsettled
	c.mu.Unlock()
	if !starting {
		return nil
	}
	release, err := c.turn.take(ctx)
	if err == nil {
		err = s.settle(ctx, c)
		release()
	}
	if err != nil {
		return fmt.Errorf("cannot stop container %s: %w", c.id, err)
	}
	return nil
}

func (s *Service) signal(ctx context.Context, c *container, sig syscall.Signal, all bool) error {
	err := s.cfg.Shim.Signal(ctx, c.id, sig, all)
	if errors.Is(err, shim.ErrNotFound) {
		// The shim has lost it, so nobody will ever report its end.
		return s.recordExit(ctx, c, shim.Exit{At: time.Now()})
	}
	if err != nil {
		return fmt.Errorf("cannot send %v to container %s: %w", sig, c.id, err)
	}
	return nil
}
