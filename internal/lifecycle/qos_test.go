package lifecycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestQOSClass(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	res := func(req, lim corev1.ResourceList) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: req, Limits: lim}
	}
	both := list("cpu", "1", "memory", "1Gi")
	for name, c := range map[string]struct {
		init, main []corev1.ResourceRequirements
		pod        *corev1.ResourceRequirements
		want       corev1.PodQOSClass
	}{
		"nothing asked for":                       {main: []corev1.ResourceRequirements{{}}, want: corev1.PodQOSBestEffort},
		"limits that were not defaulted":          {main: []corev1.ResourceRequirements{res(nil, both)}, want: corev1.PodQOSBurstable},
		"requests equal to limits":                {main: []corev1.ResourceRequirements{res(both, both)}, want: corev1.PodQOSGuaranteed},
		"another way to write the same":           {main: []corev1.ResourceRequirements{res(list("cpu", "1000m", "memory", "1Gi"), both)}, want: corev1.PodQOSGuaranteed},
		"requests without limits":                 {main: []corev1.ResourceRequirements{res(both, nil)}, want: corev1.PodQOSBurstable},
		"cpu alone":                               {main: []corev1.ResourceRequirements{res(list("cpu", "1"), list("cpu", "1"))}, want: corev1.PodQOSBurstable},
		"requests below limits":                   {main: []corev1.ResourceRequirements{res(list("cpu", "1", "memory", "1Mi"), both)}, want: corev1.PodQOSBurstable},
		"one of two containers":                   {main: []corev1.ResourceRequirements{res(both, both), {}}, want: corev1.PodQOSBurstable},
		"an init container without":               {init: []corev1.ResourceRequirements{{}}, main: []corev1.ResourceRequirements{res(both, both)}, want: corev1.PodQOSBurstable},
		"an init container alone":                 {init: []corev1.ResourceRequirements{res(both, both)}, main: []corev1.ResourceRequirements{{}}, want: corev1.PodQOSBurstable},
		"other resources do not count":            {main: []corev1.ResourceRequirements{res(list("ephemeral-storage", "1Gi"), nil)}, want: corev1.PodQOSBestEffort},
		"a request of zero below a limit":         {main: []corev1.ResourceRequirements{res(list("cpu", "0"), both)}, want: corev1.PodQOSBurstable},
		"zero is nothing":                         {main: []corev1.ResourceRequirements{res(list("cpu", "0"), nil)}, want: corev1.PodQOSBestEffort},
		"the pod's own resources count alone":     {main: []corev1.ResourceRequirements{{}}, pod: &corev1.ResourceRequirements{Requests: both, Limits: both}, want: corev1.PodQOSGuaranteed},
		"what a pod cannot have does not count":   {main: []corev1.ResourceRequirements{res(both, both)}, pod: &corev1.ResourceRequirements{Limits: list("ephemeral-storage", "1Gi")}, want: corev1.PodQOSGuaranteed},
		"the pod's own requests are not the same": {main: []corev1.ResourceRequirements{res(both, both)}, pod: &corev1.ResourceRequirements{Requests: both}, want: corev1.PodQOSBurstable},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			for _, r := range c.init {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Resources: r})
			}
			for _, r := range c.main {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: r})
			}
			pod.Spec.Resources = c.pod
			if got := QOSClass(pod); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// The hash tells names and images apart, and nothing else.
func TestContainerHash(t *testing.T) {
	a := corev1.Container{Name: "a", Image: "b"}
	for name, c := range map[string]struct {
		other corev1.Container
		same  bool
	}{
		"the same":               {corev1.Container{Name: "a", Image: "b"}, true},
		"another name":           {corev1.Container{Name: "c", Image: "b"}, false},
		"another image":          {corev1.Container{Name: "a", Image: "c"}, false},
		"a shifted border":       {corev1.Container{Name: "a\"/\"b", Image: ""}, false},
		"other resources":        {corev1.Container{Name: "a", Image: "b", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}}}, true},
		"another command":        {corev1.Container{Name: "a", Image: "b", Command: []string{"x"}}, true},
		"another restart policy": {corev1.Container{Name: "a", Image: "b", RestartPolicy: new(corev1.ContainerRestartPolicy)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ContainerHash(&a) == ContainerHash(&c.other); got != c.same {
				t.Errorf("equal: %v", got)
			}
		})
	}
	if got := ContainerHash(&a); got != "c5ae06e7" {
		t.Errorf("%s: another hash kills every container when berth is updated", got)
	}
}
