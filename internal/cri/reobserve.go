package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// reobserveEvery is how often the shim is asked for the whole truth, in case an
// event was lost.
const reobserveEvery = 30 * time.Second

// reobserve compares what is said to run with what the shim says, and records
// what ended unnoticed, and what runs although its start is said to have failed
// because the shim could not be asked. It never makes a container run.
func (s *Service) reobserve(ctx context.Context) error {
	var running, created []*container // before asking: what starts meanwhile is not missing
	for _, c := range s.allContainers() {
		switch c.state() {
		case store.ContainerRunning:
			running = append(running, c)
		case store.ContainerCreated:
			created = append(created, c)
		case store.ContainerMaking, store.ContainerExited:
		}
	}
	if len(running)+len(created) == 0 {
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
	for _, c := range created {
		if st, known := inShim[c.id]; known && hasRun(st) && s.recordLateStart(c, st) {
			running = append(running, c)
		}
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

// recordLateStart makes a created container that runs a running one, unless its
// start is under way, which does so itself.
func (s *Service) recordLateStart(c *container, st shim.Status) (late bool) {
	err := s.changeContainer(c, func(r *store.Container) {
		if late = r.State == store.ContainerCreated && !c.starting; late {
			r.State, r.StartedAt = store.ContainerRunning, st.StartedAt
			c.pid = st.PID
		}
	})
	if err != nil {
		s.log.Error("cannot record the start of a container", "id", c.id, "err", err)
	}
	if late {
		s.emit(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, c.sandboxID)
	}
	return late
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
