package cri

import (
	"context"
	"time"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// reobserveEvery is how often the shim is asked for the whole truth, in case an
// event was lost.
const reobserveEvery = 30 * time.Second

// reobserve compares what is said to run with what the shim says, and records
// what ended unnoticed, and what became of starts whose outcome is not known. It
// never makes a container run.
func (s *Service) reobserve(ctx context.Context) error {
	var running []*container // before asking: what starts meanwhile is not missing
	for _, c := range s.allContainers() {
		if c.state() == store.ContainerRunning {
			running = append(running, c)
		} else if err := s.settleNow(ctx, c); err != nil {
			return err
		}
	}
	if len(running) == 0 {
		return nil
	}
	list, err := s.cfg.Shim.List(ctx)
	if err != nil {
		return err
	}
	inShim := make(map[string]shim.Status, len(list))
	for _, st := range list {
		inShim[st.ID] = st
	}
	for _, c := range running {
		st, known := inShim[c.id]
		exit := st.Exit
		if !known {
			exit = &shim.Exit{At: time.Now()} // nobody will ever report its end
		}
		if exit == nil || c.putOff(*exit) {
			continue
		}
		if err := s.recordExit(ctx, c, *exit); err != nil {
			return err
		}
	}
	return nil
}

// reobserveNow is reobserve for those who go on without it.
func (s *Service) reobserveNow(ctx context.Context) {
	if err := s.reobserve(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("cannot ask the shim what runs", "err", err)
	}
}

// keepObserving reobserves until ctx ends.
func (s *Service) keepObserving(ctx context.Context) error {
	ticks := time.NewTicker(reobserveEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
			s.reobserveNow(ctx)
		}
	}
}
