package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

// RemoveContainer kills the container, if it runs, and removes all of it but its
// log. It succeeds if there is no such container.
func (s *Service) RemoveContainer(ctx context.Context, id string) error {
	c, err := s.container(id)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	release, err := c.turn.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := s.settle(ctx, c); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", c.id, err)
	}
	if c.state() == store.ContainerRunning {
		if err := s.stopContainer(ctx, c, 0); err != nil {
			return err
		}
	}
	if err := undo(ctx, s.containerSteps(&creation{container: c})); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", c.id, err)
	}
	s.unreserve(containerName(c.sandboxID, c.config.GetMetadata()), c.id)
	s.emit(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.id, c.sandboxID)
	return nil
}
