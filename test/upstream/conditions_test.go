package upstream

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/simulate"
)

// The conditions that the core reports are those that the kubelet would compute
// from the same container statuses and phase, in all states that simulated pods
// come through.
func TestConditionsAreTheKubelets(t *testing.T) {
	compared := 0
	for seed := range uint64(300) {
		var old corev1.PodStatus
		simulate.Run(simulate.Config{Seed: seed, Decided: func(pod *corev1.Pod, d lifecycle.Decision) {
			s := d.Status
			all := append(append([]corev1.ContainerStatus{}, s.InitContainerStatuses...), s.ContainerStatuses...)
			want := []corev1.PodCondition{
				kubelet.GeneratePodInitializedCondition(pod, &old, all, s.Phase),
				kubelet.GeneratePodReadyCondition(pod, &old, s.Conditions, all, s.Phase),
				kubelet.GenerateContainersReadyCondition(pod, &old, all, s.Phase),
			}
			for _, w := range want {
				compared++
				if diff := cmp.Diff(w, find(s.Conditions, w.Type)); diff != "" {
					t.Fatalf("seed %d, phase %s: %s (-kubelet +berth):\n%s\nstatuses %+v", seed, s.Phase, w.Type, diff, all)
				}
			}
			old = s
		}})
	}
	if compared < 10000 {
		t.Errorf("only %d conditions were compared", compared)
	}
}

func find(list []corev1.PodCondition, t corev1.PodConditionType) corev1.PodCondition {
	for _, c := range list {
		if c.Type == t {
			c.LastTransitionTime = metav1.Time{}
			return c
		}
	}
	return corev1.PodCondition{}
}
