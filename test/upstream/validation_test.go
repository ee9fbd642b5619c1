package upstream

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/simulate"
)

// The API takes each status that the core reports after the one before, in all
// states that simulated pods come through. Runs in which the agent dies are left
// out: it may have reported what it had not written down.
func TestTheAPITakesEachStatus(t *testing.T) {
	checked := 0
	for seed := range uint64(400) {
		var old *corev1.PodStatus
		var faults []fault.Fault
		for _, f := range simulate.Run(simulate.Config{Seed: seed}).Faults {
			if f.Kind != fault.KillAgent {
				faults = append(faults, f)
			}
		}
		failed := false
		simulate.Run(simulate.Config{Seed: seed, Faults: append([]fault.Fault{}, faults...), Decided: func(pod *corev1.Pod, d lifecycle.Decision) {
			if failed {
				return
			}
			before := pod.Status
			if old != nil {
				before = *old
			} else {
				before.QOSClass = d.Status.QOSClass
			}
			oldPod, newPod := internalPod(t, pod, before), internalPod(t, pod, d.Status)
			opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&newPod.Spec, &oldPod.Spec, &newPod.ObjectMeta, &oldPod.ObjectMeta)
			if errs := validation.ValidatePodStatusUpdate(newPod, oldPod, opts); len(errs) > 0 {
				failed = true
				t.Errorf("seed %d, faults %q: %v\nfrom %+v\nto %+v", seed, fault.Format(faults), errs.ToAggregate(), before, d.Status)
			}
			checked++
			old = d.Status.DeepCopy()
		}})
	}
	if checked < 10000 {
		t.Errorf("only %d statuses were checked", checked)
	}
}

func internalPod(t *testing.T, pod *corev1.Pod, s corev1.PodStatus) *core.Pod {
	t.Helper()
	pod = pod.DeepCopy()
	pod.ResourceVersion = "1"
	s.DeepCopyInto(&pod.Status)
	var out core.Pod
	if err := corev1conversion.Convert_v1_Pod_To_core_Pod(pod, &out, nil); err != nil {
		t.Fatal(err)
	}
	return &out
}
