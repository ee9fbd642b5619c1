package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/store"
)

// GC says what a Service removes without being asked, for owners who have nobody
// that does it. A kubelet does its own, and does not expect anybody else to. The
// zero value removes nothing.
type GC struct {
	Every time.Duration // how often is looked; 0: never
	Dead  DeadLimits    // which dead sandboxes and containers go; the zero value: none

	Images      ImageCollector        // removes images that no container has; nil: images stay
	ImageLimits imagestore.Thresholds // when they go; the zero value: imagestore.DefaultThresholds
}

// ImageCollector removes images. *imagestore.Store is the real one.
type ImageCollector interface {
	// Collect removes images as t says, but none that inUse names and none
	// that is being pulled.
	Collect(ctx context.Context, inUse func(id string) bool, t imagestore.Thresholds) (imagestore.Collected, error)
}

func (g *GC) validate() error {
	var errs []error
	bad := func(field string, value any) {
		errs = append(errs, fmt.Errorf("cri: Config.GC.%s is %v, want at least 0", field, value))
	}
	for field, d := range map[string]time.Duration{"Every": g.Every, "Dead.MinAge": g.Dead.MinAge, "Dead.MaxAge": g.Dead.MaxAge} {
		if d < 0 {
			bad(field, d)
		}
	}
	for field, n := range map[string]int{
		"Dead.Sandboxes": g.Dead.Sandboxes, "Dead.Containers": g.Dead.Containers, "Dead.PerContainer": g.Dead.PerContainer,
	} {
		if n < 0 {
			bad(field, n)
		}
	}
	t := g.ImageLimits
	if t == (imagestore.Thresholds{}) {
		g.ImageLimits = imagestore.DefaultThresholds
	} else if t.HighPercent < 1 || t.LowPercent < 0 || t.LowPercent > t.HighPercent {
		errs = append(errs, fmt.Errorf("cri: Config.GC.ImageLimits go from %d%% to %d%%, want a high mark of at least 1 and a low one from 0 up to it",
			t.HighPercent, t.LowPercent))
	}
	return errors.Join(errs...)
}

// keepCollecting removes what is to go until ctx ends.
func (s *Service) keepCollecting(ctx context.Context, g GC) error {
	ticks := time.NewTicker(g.Every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
		if err := s.collect(ctx, g, time.Now()); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot remove all of what is no longer needed", "err", err, "retry", g.Every)
		}
	}
}

// collect removes what is to go now. What can't be removed does not keep the rest.
func (s *Service) collect(ctx context.Context, g GC, now time.Time) error {
	sandboxes, containers := s.graves()
	goneSandboxes, goneContainers := chooseDead(now, sandboxes, containers, g.Dead)
	var errs []error
	for _, id := range goneSandboxes {
		s.log.Info("removing a dead sandbox", "id", id)
		errs = append(errs, s.RemovePodSandbox(ctx, id))
	}
	for _, id := range goneContainers {
		s.log.Info("removing a dead container", "id", id)
		errs = append(errs, s.RemoveContainer(ctx, id))
	}
	if g.Images != nil {
		// An image that a container is about to be made of may go now, if it was
		// not used for long and the disk is full: then the creation fails.
		_, err := g.Images.Collect(ctx, s.imagesInUse(), g.ImageLimits)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// graves lists what is dead. None of it can come to life again. A container that
// was never started is dead if its sandbox is.
func (s *Service) graves() (sandboxes, containers []grave) {
	for _, sb := range s.allSandboxes() {
		rec := sb.record()
		last := rec.CreatedAt
		if rec.StoppedAt.After(last) {
			last = rec.StoppedAt
		}
		alive := rec.State != store.SandboxNotReady
		meta := sb.config.GetMetadata()
		for _, c := range s.containersOf(sb.id) {
			of := c.record()
			ended := of.FinishedAt
			switch {
			case of.State == store.ContainerExited:
				containers = append(containers, grave{
					id: c.id, sandbox: sb.id, ended: ended,
					of: fmt.Sprintf("%q", []string{meta.GetNamespace(), meta.GetName(), meta.GetUid(), c.config.GetMetadata().GetName()}),
				})
			case of.State == store.ContainerRunning || c.isUnsettled():
				alive = true
			default:
				ended = of.CreatedAt
			}
			if ended.After(last) {
				last = ended
			}
		}
		if !alive {
			sandboxes = append(sandboxes, grave{id: sb.id, ended: last})
		}
	}
	return sandboxes, containers
}

// imagesInUse tells the images that containers were or are being made from, and
// those that they have as volumes.
func (s *Service) imagesInUse() func(id string) bool {
	s.mu.RLock()
	list := make([]*container, 0, len(s.containers))
	for _, c := range s.containers {
		list = append(list, c)
	}
	s.mu.RUnlock()
	used := make(map[string]bool)
	for _, c := range list {
		rec := c.record()
		used[rec.ImageID] = true
		for _, id := range rec.VolumeImages {
			used[id] = true
		}
	}
	return func(id string) bool { return used[id] }
}
