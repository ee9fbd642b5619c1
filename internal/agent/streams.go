package agent

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/podconfig"
)

// ErrNoContainer says that the pod has no container of that name, or that it
// does not run.
var ErrNoContainer = errors.New("no such container")

// StreamRequest asks for the byte streams of a container.
type StreamRequest struct {
	Command               []string // exec only
	Stdin, Stdout, Stderr bool
	TTY                   bool
}

// Exec returns where the streams of a new process in the container are served,
// once and soon.
func (a *Agent) Exec(ctx context.Context, namespace, pod, container string, r StreamRequest) (*url.URL, error) {
	id, err := a.runningContainer(namespace, pod, container)
	if err != nil {
		return nil, err
	}
	if err := a.shimAnswers(ctx); err != nil {
		return nil, err // it says all there is to say
	}
	resp, err := a.cri.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: r.Command, Tty: r.TTY, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot run a command in container %s of pod %s/%s: %w", container, namespace, pod, err)
	}
	return url.Parse(resp.GetUrl())
}

// Attach returns where the streams of the container's first process are served,
// once and soon.
func (a *Agent) Attach(ctx context.Context, namespace, pod, container string, r StreamRequest) (*url.URL, error) {
	id, err := a.runningContainer(namespace, pod, container)
	if err != nil {
		return nil, err
	}
	if err := a.shimAnswers(ctx); err != nil {
		return nil, err // it says all there is to say
	}
	resp, err := a.cri.Attach(ctx, &runtimeapi.AttachRequest{
		ContainerId: id, Tty: r.TTY, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot attach to container %s of pod %s/%s: %w", container, namespace, pod, err)
	}
	return url.Parse(resp.GetUrl())
}

// PortForward returns where connections to ports of the pod are served, once and
// soon.
func (a *Agent) PortForward(ctx context.Context, namespace, pod string, ports []int32) (*url.URL, error) {
	uid, ok := a.podUID(namespace, pod)
	if !ok {
		return nil, fmt.Errorf("%w: %s/%s", ErrNoPod, namespace, pod)
	}
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	sandboxes, err := a.cri.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		State: ready, LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(uid)},
	})
	if err != nil {
		return nil, err
	}
	if len(sandboxes) == 0 {
		return nil, fmt.Errorf("%w: pod %s/%s does not run", ErrNoContainer, namespace, pod)
	}
	resp, err := a.cri.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandboxes[0].GetId(), Port: ports})
	if err != nil {
		return nil, fmt.Errorf("cannot forward ports of pod %s/%s: %w", namespace, pod, err)
	}
	return url.Parse(resp.GetUrl())
}

// runningContainer is the runtime's id of a container that runs.
func (a *Agent) runningContainer(namespace, pod, container string) (string, error) {
	uid, ok := a.podUID(namespace, pod)
	if !ok {
		return "", fmt.Errorf("%w: %s/%s", ErrNoPod, namespace, pod)
	}
	s := a.feed.status(uid)
	if s == nil {
		return "", fmt.Errorf("%w: pod %s/%s has not started", ErrNoContainer, namespace, pod)
	}
	for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		for _, c := range list {
			if c.Name != container {
				continue
			}
			if c.State.Running == nil {
				return "", fmt.Errorf("%w: container %s of pod %s/%s does not run", ErrNoContainer, container, namespace, pod)
			}
			return strings.TrimPrefix(c.ContainerID, runtimeName+"://"), nil
		}
	}
	return "", fmt.Errorf("%w: pod %s/%s has no container %s", ErrNoContainer, namespace, pod, container)
}

// LogDir is the folder of a container's log files; false: the pod is not known.
func (a *Agent) LogDir(uid types.UID, container string) (string, bool) {
	d, ok := a.pods.Get(uid)
	if !ok {
		return "", false
	}
	return filepath.Join(podconfig.LogDirectory(d.Pod, a.cfg.home.Logs()), container), true
}
