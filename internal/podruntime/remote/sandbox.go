package remote

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podconfig"
	"github.com/berth-run/berth/internal/podruntime"
)

// createSandbox makes sandbox number a.Attempt, or finds that it is there.
func (r *Runtime) createSandbox(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) error {
	existing, err := r.cfg.Service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{podconfig.LabelPodUID: string(pod.UID)},
	})
	if err != nil {
		return fmt.Errorf("cannot look for sandboxes: %w", err)
	}
	for _, b := range existing {
		if int(b.GetMetadata().GetAttempt()) != a.Attempt {
			continue
		}
		if b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			return nil // an earlier try took effect
		}
		if err := r.stopSandbox(ctx, b.Id); err != nil {
			return err
		}
		if err := r.removeSandbox(ctx, b.Id); err != nil {
			return err
		}
	}
	config, err := r.sandboxConfig(pod, a.Attempt)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, w := range podconfig.SandboxWarnings(pod, r.facts(pod, a.Attempt)) {
		r.cfg.Recorder.Record(podruntime.PodRef(pod, ""), corev1.EventTypeWarning, w.Reason, w.Message)
	}
	call, done := r.making(ctx)
	defer done()
	handler := r.cfg.RuntimeHandler
	if class := pod.Spec.RuntimeClassName; class != nil {
		handler = *class
	}
	_, err = r.cfg.Service.RunPodSandbox(call, config, handler)
	return err
}

// facts are what is known of the node and the pod.
func (r *Runtime) facts(pod *corev1.Pod, sandboxAttempt int) podconfig.Facts {
	f := r.cfg.Facts(pod)
	f.Attempt = sandboxAttempt
	if r.cfg.Cgroups != nil {
		f.CgroupParent = r.cfg.Cgroups.Parent(pod)
	}
	return f
}

// sandboxConfig is the config of the sandbox, the same each time it is asked.
func (r *Runtime) sandboxConfig(pod *corev1.Pod, attempt int) (*runtimeapi.PodSandboxConfig, error) {
	config, err := podconfig.Sandbox(pod, r.facts(pod, attempt))
	if err != nil {
		return nil, err
	}
	config.Labels = r.mark(config.Labels)
	return config, nil
}

// mark adds whose it is to labels.
func (r *Runtime) mark(labels map[string]string) map[string]string {
	if r.cfg.Owner == "" {
		return labels
	}
	marked := maps.Clone(labels)
	if marked == nil {
		marked = make(map[string]string, 1)
	}
	marked[labelOwner] = r.cfg.Owner
	return marked
}

// stopSandbox ends a sandbox; no error if it is gone.
func (r *Runtime) stopSandbox(ctx context.Context, id string) error {
	call, done := r.making(ctx)
	defer done()
	if err := r.cfg.Service.StopPodSandbox(call, id); err != nil && !crierrors.IsNotFound(err) {
		return fmt.Errorf("cannot stop sandbox %s: %w", id, err)
	}
	return nil
}

// removeSandbox removes a sandbox with its containers; no error if it is gone.
func (r *Runtime) removeSandbox(ctx context.Context, id string) error {
	call, done := r.making(ctx)
	defer done()
	if err := r.cfg.Service.RemovePodSandbox(call, id); err != nil && !crierrors.IsNotFound(err) {
		return fmt.Errorf("cannot remove sandbox %s: %w", id, err)
	}
	return nil
}
