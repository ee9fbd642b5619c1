package cli

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// onePod finds the pod that arg names.
func (s *session) onePod(ctx context.Context, arg, namespace string) (*corev1.Pod, error) {
	pods, err := s.client.Pods(ctx)
	if err != nil {
		return nil, err
	}
	found := findPods(pods, arg, namespace)
	if len(found) == 0 {
		return nil, noSuchPod(arg, pods)
	}
	// One that is being replaced is still there: the newer one is meant.
	best := &found[0]
	for i := range found {
		p := &found[i]
		if p.Namespace != best.Namespace {
			return nil, fmt.Errorf("several pods are called %s: say %s or %s", arg,
				podName(best.Namespace, best.Name), podName(p.Namespace, p.Name))
		}
		if best.DeletionTimestamp != nil && p.DeletionTimestamp == nil {
			best = p
		}
	}
	return best, nil
}

// oneContainer is the container that name means: the only one, or that of the
// kubectl annotation, if it is empty.
func oneContainer(p *corev1.Pod, name string) (string, error) {
	var names, all []string
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	all = append(all, names...)
	for _, c := range p.Spec.InitContainers {
		all = append(all, c.Name)
	}
	if name == "" {
		name = p.Annotations["kubectl.kubernetes.io/default-container"]
	}
	if name == "" {
		if len(names) == 1 {
			return names[0], nil
		}
		return "", fmt.Errorf("pod %s has several containers, choose one with -c: %s", p.Name, strings.Join(all, ", "))
	}
	for _, n := range all {
		if n == name {
			return n, nil
		}
	}
	return "", fmt.Errorf("pod %s has no container %s; it has: %s", p.Name, name, strings.Join(all, ", "))
}
