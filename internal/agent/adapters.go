package agent

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cgroup"
	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/lifecycle"
)

// The parts know each other by small interfaces of their own; what differs only
// in shape is bridged here.

// podCgroups makes pods' cgroups for the runtime.
type podCgroups struct {
	tree *cgroup.Tree
	pids int64 // processes and threads of a pod; 0: no limit
}

func (c podCgroups) Make(_ context.Context, pod *corev1.Pod) error {
	qos := lifecycle.QOSClass(pod)
	r := cgroup.PodResources(pod, qos)
	r.Pids = c.pids
	_, err := c.tree.Ensure(pod.UID, qos, r)
	return err
}

func (c podCgroups) Parent(pod *corev1.Pod) string {
	return c.tree.Path(pod.UID, lifecycle.QOSClass(pod))
}

// Remove does not know the class of a pod that nobody knows any more.
func (c podCgroups) Remove(ctx context.Context, uid types.UID) error {
	pods, err := c.tree.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pods {
		if p.UID == uid {
			errs = append(errs, c.tree.Remove(ctx, p))
		}
	}
	return errors.Join(errs...)
}

// puller pulls images and tells how far it is.
type puller struct{ store *imagestore.Store }

func (p puller) Pull(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, progress func(done, total int64)) (string, error) {
	img, err := p.store.Pull(ctx, image.GetImage(), auth, func(at imagestore.Progress) {
		progress(at.DoneBytes, at.TotalBytes)
	})
	return img.ID, err
}

// closers closes what was opened, the last first.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c closers) close() error {
	var errs []error
	for i := len(c) - 1; i >= 0; i-- {
		errs = append(errs, c[i]())
	}
	return errors.Join(errs...)
}
