package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// cleanupAtOnce is how many sandboxes Cleanup removes at the same time.
const cleanupAtOnce = 16

// Cleanup kills and removes everything this runtime made: sandboxes,
// containers, networks, and its part of the run folder. Images stay. The
// Service can't be used afterwards.
func (s *Service) Cleanup(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cleanupAtOnce)
	for _, sb := range s.allSandboxes() {
		g.Go(func() error { return s.RemovePodSandbox(ctx, sb.id) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("cannot clean up: %w", err)
	}
	s.background.Wait()
	return errors.Join(s.cfg.Network.Cleanup(context.WithoutCancel(ctx)), s.removeRunFolders())
}

// removeRunFolders removes folders that are empty by now, and the state, which
// is empty too but for the stamp of this boot.
func (s *Service) removeRunFolders() error {
	var errs []error
	for _, dir := range []string{"sandboxes", "containers", "ns"} {
		if err := os.Remove(filepath.Join(s.cfg.Run, dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(filepath.Join(s.cfg.Run, "state")))...)
}
