package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

// StopPodSandbox kills what runs in the sandbox and takes down its network and
// namespaces. It succeeds if that was done before, or if there is no such
// sandbox.
func (s *Service) StopPodSandbox(ctx context.Context, id string) error {
	sb, err := s.sandbox(id)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	release, err := sb.turn.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	return s.stopSandbox(ctx, sb)
}

// stopSandbox needs the sandbox's turn.
func (s *Service) stopSandbox(ctx context.Context, sb *sandbox) error {
	wasReady := sb.state() == store.SandboxReady
	if wasReady { // from here on it takes no new containers
		if err := s.markStopped(sb); err != nil {
			return err
		}
	}
	if err := s.killContainers(ctx, sb.id); err != nil {
		return err
	}
	if err := undo(ctx, s.sandboxLiveSteps(sb)); err != nil {
		return fmt.Errorf("cannot stop sandbox %s: %w", sb.id, err)
	}
	if wasReady {
		s.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, sb.id, sb.id)
	}
	return nil
}

// markStopped records that a sandbox is not ready any more, for good.
func (s *Service) markStopped(sb *sandbox) error {
	return s.changeSandbox(sb, func(r *store.Sandbox) { r.State, r.StoppedAt = store.SandboxNotReady, time.Now() })
}

// killContainers ends every container of a sandbox, all at once.
func (s *Service) killContainers(ctx context.Context, sandboxID string) error {
	list := s.containersOf(sandboxID)
	ended := make(chan error, len(list))
	for _, c := range list {
		go func() { ended <- s.stopContainer(ctx, c, 0) }()
	}
	var errs []error
	for range list {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}
