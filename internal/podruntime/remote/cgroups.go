package remote

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/cgroup"
)

// PodCgroups makes the cgroups of pods in a tree.
type PodCgroups struct{ Tree *cgroup.Tree }

// Make makes the pod's cgroup with its limits.
func (c PodCgroups) Make(_ context.Context, pod *corev1.Pod) error {
	_, err := c.Tree.Ensure(pod.UID, cgroup.PodQOS(pod), cgroup.PodResources(pod))
	return err
}

// Parent names the pod's cgroup, below the mounts.
func (c PodCgroups) Parent(pod *corev1.Pod) string {
	return c.Tree.Path(pod.UID, cgroup.PodQOS(pod))
}

// Remove removes the pod's cgroup, of whatever class it was made: of an orphan
// only the uid is known.
func (c PodCgroups) Remove(ctx context.Context, uid types.UID) error {
	for _, qos := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if err := c.Tree.Remove(ctx, cgroup.Pod{UID: uid, QOS: qos, Path: c.Tree.Path(uid, qos)}); err != nil {
			return err
		}
	}
	return nil
}

var _ Cgroups = PodCgroups{}
