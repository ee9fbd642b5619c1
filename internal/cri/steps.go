package cri

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// undoTimeout bounds taking back what a failed or cancelled call made.
const undoTimeout = 30 * time.Second

// step is one part of making a sandbox or container.
type step struct {
	name string // completes "cannot …"
	do   func(ctx context.Context) error
	// undo takes back what do made. It must also succeed when do failed half
	// way, never ran, or was undone before, and needs nothing but the id: it
	// also cleans up after a killed agent. nil: nothing to take back.
	undo func(ctx context.Context) error
}

// do carries out the steps in order. If one fails, it and those before it are
// undone, whatever has become of ctx.
func (s *Service) do(ctx context.Context, steps []step) error {
	for i, st := range steps {
		err := ctx.Err()
		if err == nil {
			err = st.do(ctx)
		}
		if err == nil && s.fault != nil {
			err = s.fault(st.name)
		}
		if err != nil {
			err = fmt.Errorf("cannot %s: %w", st.name, err)
			undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			return errors.Join(err, undo(undoing, steps[:i+1]))
		}
	}
	return nil
}

// undo takes the steps back, last first. It goes on after an error, so that as
// little as possible is left.
func undo(ctx context.Context, steps []step) error {
	var errs []error
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].undo == nil {
			continue
		}
		if err := steps[i].undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("cannot undo %q: %w", steps[i].name, err))
		}
	}
	return errors.Join(errs...)
}

// turn lets one operation at a time work on an object. Unlike a mutex it may be
// held across I/O, and waiting for it can be cancelled.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn; the caller must call the returned function.
func (t turn) take(ctx context.Context) (release func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
