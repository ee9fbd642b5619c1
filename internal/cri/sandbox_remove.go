package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemovePodSandbox stops the sandbox, if need be, and removes it and its
// containers. It succeeds if there is no such sandbox.
func (s *Service) RemovePodSandbox(ctx context.Context, id string) error {
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
	if err := s.stopSandbox(ctx, sb); err != nil {
		return err
	}
	for _, c := range s.containersOf(sb.id) {
		if err := s.RemoveContainer(ctx, c.id); err != nil {
			return err
		}
	}
	if err := undo(ctx, s.sandboxKeptSteps(sb)); err != nil {
		return fmt.Errorf("cannot remove sandbox %s: %w", sb.id, err)
	}
	s.unreserve(sandboxName(sb.config.GetMetadata()), sb.id)
	s.emit(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, sb.id, sb.id)
	return nil
}
