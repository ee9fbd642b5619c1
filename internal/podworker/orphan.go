package podworker

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/podruntime"
)

// Orphan is what is wanted of a pod that the node holds something of, and that
// nobody knows: its end. Its containers get the signal and then grace.
func Orphan(ref podruntime.Ref, now time.Time, grace time.Duration) Desired {
	deleted := metav1.NewTime(now)
	seconds := int64((grace + time.Second - 1) / time.Second)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID:                        ref.UID,
			Namespace:                  ref.Namespace,
			Name:                       ref.Name,
			DeletionTimestamp:          &deleted,
			DeletionGracePeriodSeconds: &seconds,
		},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &seconds, RestartPolicy: corev1.RestartPolicyNever},
	}
	return Desired{Pod: pod}
}
