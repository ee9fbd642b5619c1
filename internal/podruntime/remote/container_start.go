package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podconfig"
	"github.com/berth-run/berth/internal/volume"
)

// startContainer creates and starts attempt a.Attempt of a container. The id is
// returned with an error too, where a container was made and could not start.
func (r *Runtime) startContainer(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) (id string, err error) {
	spec := containerSpec(pod, a.Container)
	if spec == nil {
		return "", failed(lifecycle.ReasonCreateContainerConfigError, fmt.Errorf("the pod has no container %q any more", a.Container))
	}
	id, err = r.takeOver(ctx, pod, a)
	if id != "" || err != nil {
		return id, err
	}
	config, sandbox, err := r.containerConfig(ctx, pod, spec, a)
	if err != nil {
		return "", failed(lifecycle.ReasonCreateContainerConfigError, err)
	}
	if err := os.MkdirAll(filepath.Join(sandbox.LogDirectory, a.Container), 0o755); err != nil {
		return "", failed(lifecycle.ReasonCreateContainerError, fmt.Errorf("cannot make log folder: %w", err))
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	call, done := r.making(ctx)
	defer done()
	id, err = r.cfg.Service.CreateContainer(call, a.SandboxID, config, sandbox)
	if err != nil {
		return "", failed(lifecycle.ReasonCreateContainerError, err)
	}
	if err := ctx.Err(); err != nil {
		// No longer wanted, and it has not run: as if it had never been made.
		if err := r.cfg.Service.RemoveContainer(call, id); err == nil || crierrors.IsNotFound(err) {
			return "", ctx.Err()
		}
		return id, err
	}
	if err := r.cfg.Service.StartContainer(call, id); err != nil {
		return id, failed(lifecycle.ReasonRunContainerError, err)
	}
	return id, nil
}

// takeOver looks for what an earlier try left: one that has run is the answer,
// one that was only created is removed.
func (r *Runtime) takeOver(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) (id string, err error) {
	existing, err := r.cfg.Service.ListContainers(ctx, &runtimeapi.ContainerFilter{
		PodSandboxId: a.SandboxID,
		LabelSelector: map[string]string{
			podconfig.LabelPodUID: string(pod.UID), podconfig.LabelContainerName: a.Container,
		},
	})
	if err != nil {
		return "", failed(lifecycle.ReasonCreateContainerError, fmt.Errorf("cannot look for containers: %w", err))
	}
	for _, c := range existing {
		if int(c.GetMetadata().GetAttempt()) != a.Attempt {
			continue
		}
		if c.State != runtimeapi.ContainerState_CONTAINER_CREATED {
			return c.Id, nil
		}
		call, done := r.making(ctx)
		err := r.cfg.Service.RemoveContainer(call, c.Id)
		done()
		if err != nil && !crierrors.IsNotFound(err) {
			return "", failed(lifecycle.ReasonCreateContainerError, fmt.Errorf("cannot remove container %s that never ran: %w", c.Id, err))
		}
	}
	return "", nil
}

// containerConfig looks up all that the container's config depends on.
func (r *Runtime) containerConfig(ctx context.Context, pod *corev1.Pod, spec *corev1.Container, a lifecycle.Action) (*runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig, error) {
	box, err := r.sandbox(ctx, a.SandboxID)
	if err != nil {
		return nil, nil, failed(lifecycle.ReasonCreateContainerError, err)
	}
	base := r.facts(pod, box.Attempt)
	sandbox, err := r.sandboxConfig(pod, box.Attempt)
	if err != nil {
		return nil, nil, err
	}
	f := podconfig.ContainerFacts{
		Facts:             base,
		ContainerAttempt:  a.Attempt,
		ImageRef:          a.ImageRef,
		PodIPs:            box.IPs,
		HostIPs:           r.cfg.HostIPs(),
		RecursiveReadOnly: r.cfg.RecursiveReadOnly,
	}
	if box.HostNetwork {
		f.PodIPs = f.HostIPs
	}
	if f.ImageUser, err = r.imageUser(ctx, a.ImageRef); err != nil {
		return nil, nil, err
	}
	if f.Volumes, err = r.volumesOf(ctx, pod); err != nil {
		return nil, nil, err
	}
	if err := r.need(ctx, pod, spec, &f); err != nil {
		return nil, nil, err
	}
	if f.SubPaths, err = r.subPaths(ctx, pod, spec, f); err != nil {
		return nil, nil, err
	}
	if f.HostsPath, err = r.writeHosts(pod, f.PodIPs, base); err != nil {
		return nil, nil, err
	}
	if spec.TerminationMessagePath != "" {
		if f.TerminationLogPath, err = r.cfg.Volumes.MakeTerminationLog(pod.UID, spec.Name, a.Attempt); err != nil {
			return nil, nil, err
		}
	}
	f.TargetID = r.target(pod, a)
	config, err := podconfig.Container(pod, spec, f)
	if err != nil {
		return nil, nil, err
	}
	config.Labels = r.mark(config.Labels)
	return config, sandbox, nil
}

// sandbox asks for one sandbox.
func (r *Runtime) sandbox(ctx context.Context, id string) (lifecycle.Sandbox, error) {
	response, err := r.cfg.Service.PodSandboxStatus(ctx, id, false)
	if err != nil {
		return lifecycle.Sandbox{}, fmt.Errorf("cannot find sandbox %s: %w", id, err)
	}
	return sandboxOf(response.GetStatus()), nil
}

// imageUser is who the image says that its process runs as.
func (r *Runtime) imageUser(ctx context.Context, ref string) (podconfig.ImageUser, error) {
	response, err := r.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}, false)
	if err != nil {
		return podconfig.ImageUser{}, failed(lifecycle.ReasonImageInspectError, fmt.Errorf("cannot look into image %s: %w", ref, err))
	}
	image := response.GetImage()
	if image == nil {
		return podconfig.ImageUser{}, failed(lifecycle.ReasonCreateContainerError, fmt.Errorf("image %s is gone since it was pulled", ref))
	}
	user := podconfig.ImageUser{Name: image.GetUsername()}
	if image.GetUid() != nil {
		uid := image.GetUid().GetValue()
		user.UID = &uid
	}
	return user, nil
}

// need gets the ConfigMaps, Secrets and files that the container's environment
// is made of. What does not exist is left out: whether that is an error, the
// config says.
func (r *Runtime) need(ctx context.Context, pod *corev1.Pod, spec *corev1.Container, f *podconfig.ContainerFacts) error {
	needs := podconfig.Needs(spec)
	f.ConfigMaps = make(map[string]*corev1.ConfigMap, len(needs.ConfigMaps))
	for _, name := range needs.ConfigMaps {
		cm, err := r.cfg.Sources.ConfigMap(ctx, pod.Namespace, name)
		if err == nil {
			f.ConfigMaps[name] = cm
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot get configmap %s/%s: %w", pod.Namespace, name, err)
		}
	}
	f.Secrets = make(map[string]*corev1.Secret, len(needs.Secrets))
	for _, name := range needs.Secrets {
		s, err := r.cfg.Sources.Secret(ctx, pod.Namespace, name)
		if err == nil {
			f.Secrets[name] = s
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot get secret %s/%s: %w", pod.Namespace, name, err)
		}
	}
	f.EnvFiles = make(map[podconfig.EnvFile][]byte, len(needs.EnvFiles))
	for _, file := range needs.EnvFiles {
		data, err := volume.ReadFile(f.Volumes[file.Volume].HostPath, file.Path)
		switch {
		case err == nil:
			f.EnvFiles[file] = data
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("cannot read %s of volume %q: %w", file.Path, file.Volume, err)
		}
	}
	return nil
}

// target is the container whose processes an ephemeral container sees; empty:
// none.
func (r *Runtime) target(pod *corev1.Pod, a lifecycle.Action) string {
	for i := range pod.Spec.EphemeralContainers {
		e := &pod.Spec.EphemeralContainers[i]
		if e.Name != a.Container || e.TargetContainerName == "" {
			continue
		}
		p := r.seen.hold(pod.UID)
		defer r.seen.drop(pod.UID, p)
		for id, c := range r.seen.last(p).conts {
			if c.Name == e.TargetContainerName && c.State == lifecycle.ContainerRunning {
				return id
			}
		}
	}
	return ""
}

// containerSpec finds a container of any kind; nil: there is none.
func containerSpec(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
			return &c
		}
	}
	return nil
}

// failed gives an error the reason for the status, unless it has one.
func failed(reason string, err error) error {
	var f *lifecycle.Failed
	if errors.As(err, &f) {
		return err
	}
	return &lifecycle.Failed{Reason: reason, Message: err.Error()}
}
