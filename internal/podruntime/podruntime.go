// Package podruntime is what berth needs of whatever runs its pods: the
// contract between the workers of pods and a runtime.
//
// Package podruntime/remote implements it over CRI's Go interfaces, in process
// or over a socket. Each implementation passes the suite in
// podruntime/podruntimetest. Nothing here chooses: what to do is decided by
// package lifecycle.
package podruntime

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/lifecycle"
)

// Runtime runs pods. All methods are safe for concurrent use.
type Runtime interface {
	// Observe reports what the node holds of the pod, as it is at Observed.At or
	// later. It never returns older state than an earlier call did, nor state
	// older than the end of the last Do of this pod. It is cheap while nothing
	// has changed. An error means that nothing is known.
	Observe(ctx context.Context, pod *corev1.Pod) (lifecycle.Observed, error)
	// Do carries out one action and returns when it has succeeded or failed. It
	// is safe to repeat, also when an earlier one took effect. Cancelling ctx
	// abandons the action; it may have taken effect when Do returns, but takes
	// none later. Hooks are not for Do.
	//
	// An error that is a *lifecycle.Failed carries its reason into the status.
	// The result is valid with an error too: a container that was made and could
	// not be started has an id.
	Do(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) (Result, error)
	// Exec runs a command in a running container, for probes and hooks, and
	// returns its combined output, cut to a reasonable length, and its exit
	// code. err says that it could not be run or that nobody knows how it ended.
	// When ctx ends, the command is killed with all it started before Exec
	// returns, as far as the runtime can.
	Exec(ctx context.Context, containerID string, command []string) (output []byte, exitCode int32, err error)
	// Pods lists all pods of which the node holds a sandbox, a container or a
	// folder.
	Pods(ctx context.Context) ([]Ref, error)
	// Events calls poke for each pod of which something may have changed, until
	// ctx ends. It reconnects by itself, and from time to time it compares what
	// runs with what was told, so that a lost event only delays. poke must not
	// block.
	Events(ctx context.Context, poke func(uid types.UID)) error
}

// Result is what an action produced.
type Result struct {
	// ImageRef is what to start the container from, after PullImage.
	ImageRef string
	// ContainerID is the container that StartContainer made.
	ContainerID string
}

// Ref names a pod that the node holds something of. Name and namespace are
// empty where only a folder is left.
type Ref struct {
	UID       types.UID
	Namespace string
	Name      string
}
