package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// Recover takes over what an earlier Service left: it learns of exits, removes
// what was half made or belongs to nobody, and starts nothing. Call it once,
// before Run and before anything else. What can't be removed is logged and
// tried again at the next start.
func (s *Service) Recover(ctx context.Context) error {
	began := time.Now()
	if s.rebooted {
		s.log.Info("the machine was restarted, all sandboxes and containers are gone")
	}
	loaded, err := s.store.Load()
	if err != nil {
		return err
	}
	list, err := s.cfg.Shim.List(ctx)
	if err != nil {
		return fmt.Errorf("cannot take over containers: %w", err)
	}
	inShim := make(map[string]shim.Status, len(list))
	for _, st := range list {
		inShim[st.ID] = st
	}
	for _, rec := range loaded.Sandboxes {
		s.sandboxes[rec.ID] = newSandbox(rec)
	}
	for _, rec := range loaded.Containers {
		s.containers[rec.ID] = newContainer(rec)
	}
	s.dropBroken(ctx, loaded)
	for _, sb := range s.allSandboxes() {
		s.names[sandboxName(sb.config.GetMetadata())] = sb.id
		s.adoptSandbox(sb, inShim)
	}
	for _, c := range s.allContainers() {
		s.names[containerName(c.sandboxID, c.config.GetMetadata())] = c.id
		s.adoptContainer(ctx, c, inShim)
	}
	s.sweep(ctx, list)
	s.log.Debug("took over sandboxes and containers", "sandboxes", len(s.sandboxes), "containers", len(s.containers), "took", time.Since(began))
	return nil
}

// dropBroken removes what can't be read and what has lost its sandbox. What was
// half made has no record; sweep finds it.
func (s *Service) dropBroken(ctx context.Context, loaded store.Loaded) {
	drop := func(kind, id string, why any, steps []step) {
		s.log.Warn("removing what is left", "kind", kind, "id", id, "why", why)
		if err := undo(ctx, steps); err != nil {
			s.log.Error("cannot remove what is left", "kind", kind, "id", id, "err", err)
		}
	}
	for _, rec := range loaded.Containers {
		if s.sandboxes[rec.SandboxID] == nil {
			drop("container", rec.ID, "its sandbox is gone", s.containerSteps(&creation{container: newContainer(rec)}))
		}
	}
	for id, why := range loaded.BrokenContainers {
		drop("container", id, why, s.containerSteps(&creation{container: newContainer(store.Container{ID: id})}))
	}
	for id, why := range loaded.BrokenSandboxes {
		drop("sandbox", id, why, s.sandboxSteps(newSandbox(store.Sandbox{ID: id})))
	}
}

// adoptSandbox checks that a ready sandbox still has its namespaces.
func (s *Service) adoptSandbox(sb *sandbox, inShim map[string]shim.Status) {
	if sb.state() != store.SandboxReady {
		return
	}
	kinds := sb.ownNamespaces()
	if sb.sharesPID() {
		kinds = append(kinds, nsPID)
	}
	if _, _, ok := sb.userNamespace(); ok {
		kinds = append(kinds, nsUser)
	}
	whole := true
	for _, k := range kinds {
		whole = whole && pinned(s.pinPath(sb.id, k))
	}
	if pause := inShim[pauseID(sb.id)]; sb.sharesPID() && pause.State != shim.Running {
		whole = false
	}
	if whole {
		return
	}
	s.log.Warn("a sandbox has lost its namespaces and can't be used any more", "id", sb.id)
	if err := s.markStopped(sb); err != nil {
		s.log.Error("cannot record the end of a sandbox", "id", sb.id, "err", err)
	}
}

// adoptContainer makes the record agree with what the shim says.
func (s *Service) adoptContainer(ctx context.Context, c *container, inShim map[string]shim.Status) {
	st, known := inShim[c.id]
	rec := c.record()
	var err error
	switch {
	case rec.State == store.ContainerExited:
		return // sweep makes the shim forget it
	case rec.State == store.ContainerCreated && !hasRun(st):
		return // its command never ran; sweep clears up in the shim
	case !known:
		err = s.recordExit(ctx, c, shim.Exit{At: time.Now()})
	case st.State == shim.Created:
		// It was said to run, so its start was lost on the way: it never ran.
		err = s.recordExit(ctx, c, shim.Exit{At: time.Now()})
	default:
		c.mu.Lock()
		c.pid = st.PID
		c.mu.Unlock()
		if rec.State == store.ContainerCreated { // killed between its start and the record of it
			err = s.changeContainer(c, func(r *store.Container) {
				r.State, r.StartedAt = store.ContainerRunning, st.StartedAt
			})
		}
		if st.Exit != nil {
			err = errors.Join(err, s.recordExit(ctx, c, *st.Exit))
		}
	}
	if err != nil {
		s.log.Error("cannot record what became of a container", "id", c.id, "err", err)
	}
}

// sweep removes what belongs to no sandbox or container: of the shim, in the
// run folder, snapshots and networks. It never touches what is known.
func (s *Service) sweep(ctx context.Context, list []shim.Status) {
	var errs []error
	for _, st := range list {
		if !s.wants(st) {
			errs = append(errs, s.cfg.Shim.Delete(ctx, st.ID))
		}
	}
	for _, id := range s.strangers("containers", func(id string) bool { return s.containers[id] != nil }) {
		errs = append(errs, undo(ctx, s.containerSteps(&creation{container: newContainer(store.Container{ID: id})})))
	}
	for _, dir := range []string{"ns", "sandboxes"} {
		for _, id := range s.strangers(dir, func(id string) bool { return s.sandboxes[id] != nil }) {
			errs = append(errs, undo(ctx, s.sandboxSteps(newSandbox(store.Sandbox{ID: id}))))
		}
	}
	snapshots, err := s.cfg.Images.Snapshots(ctx)
	errs = append(errs, err)
	for _, snap := range snapshots {
		owner, _, _ := strings.Cut(snap.Key, "-volume-")
		if s.containers[owner] == nil {
			errs = append(errs, s.cfg.Images.Release(ctx, snap.Key))
		}
	}
	_, err = s.cfg.Network.Reclaim(ctx, func(id string) bool { return s.sandboxes[id] != nil })
	if err = errors.Join(append(errs, err)...); err != nil {
		s.log.Error("cannot remove everything that belongs to nobody", "err", err)
	}
}

// wants reports whether the shim must keep a container.
func (s *Service) wants(st shim.Status) bool {
	if c := s.containers[st.ID]; c != nil {
		return c.state() == store.ContainerRunning
	}
	sb := s.sandboxes[strings.TrimSuffix(st.ID, "-pause")]
	return sb != nil && sb.state() == store.SandboxReady && st.ID == pauseID(sb.id)
}

// strangers lists the folders of a kind that no known object has.
func (s *Service) strangers(kind string, known func(id string) bool) []string {
	entries, err := os.ReadDir(filepath.Join(s.cfg.Run, kind))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.log.Error("cannot look for left-over folders", "err", err)
		}
		return nil
	}
	var out []string
	for _, e := range entries {
		if !known(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out
}
