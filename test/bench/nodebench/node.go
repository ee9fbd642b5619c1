package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// node is an agent to be measured, as far as it can be reached from outside.
type node interface {
	create(ctx context.Context, pod *corev1.Pod) error
	delete(ctx context.Context, name string) error
	// watch sends every change of a pod until ctx ends, beginning with what is
	// there. The channel is closed at the end.
	watch(ctx context.Context) (<-chan change, error)
}

// change is one pod as it is now.
type change struct {
	name   string
	ready  bool
	gone   bool
	status *corev1.PodStatus
}

func isReady(s *corev1.PodStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
