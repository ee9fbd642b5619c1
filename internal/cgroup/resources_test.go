package cgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func list(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for name, v := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if v != "" {
			l[name] = resource.MustParse(v)
		}
	}
	return l
}

func uses(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	return c
}

func podOf(cs ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: cs}}
}

func TestPodResources(t *testing.T) {
	const mi = 1 << 20
	same := uses(list("500m", "64Mi"), list("500m", "64Mi"))
	withInit := podOf(same)
	withInit.Spec.InitContainers = []corev1.Container{uses(list("2", "32Mi"), list("2", "32Mi"))}
	withSidecar := podOf(same)
	withSidecar.Spec.InitContainers = []corev1.Container{sidecar(same)}
	withOverhead := podOf(same)
	withOverhead.Spec.Overhead = list("100m", "16Mi")
	whole := podOf(uses(nil, nil), uses(nil, nil))
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: list("1", "100Mi"), Limits: list("2", "200Mi")}
	unlimitedInit := podOf(same)
	unlimitedInit.Spec.InitContainers = []corev1.Container{uses(list("1m", ""), nil)}
	huge := podOf(uses(list("1", "1Mi"), list("1", "1Mi")))
	huge.Spec.Containers[0].Resources.Requests["hugepages-2Mi"] = resource.MustParse("8Mi")
	huge.Spec.Containers[0].Resources.Limits["hugepages-2Mi"] = resource.MustParse("8Mi")

	for name, c := range map[string]struct {
		pod  *corev1.Pod
		qos  corev1.PodQOSClass
		want Resources
	}{
		"nothing asked for gets the least share":                {podOf(uses(nil, nil)), corev1.PodQOSBestEffort, Resources{CPUShares: 2}},
		"limits equal to requests are guaranteed":               {podOf(same, same), corev1.PodQOSGuaranteed, Resources{CPUShares: 1024, CPUQuotaMicros: 100_000, MemoryBytes: 128 * mi}},
		"one container without a limit lifts the pod's":         {podOf(same, uses(list("500m", ""), list("", "64Mi"))), corev1.PodQOSBurstable, Resources{CPUShares: 1024, MemoryBytes: 128 * mi}},
		"an init container without a limit lifts the pod's too": {unlimitedInit, corev1.PodQOSBurstable, Resources{CPUShares: 512}},
		"a memory request alone sets no share":                  {podOf(uses(list("", "1Gi"), nil)), corev1.PodQOSBurstable, Resources{CPUShares: 2}},
		"a tiny limit gets the kernel's least quota":            {podOf(uses(list("1m", ""), list("1m", ""))), corev1.PodQOSBurstable, Resources{CPUShares: 2, CPUQuotaMicros: 1000}},
		"a huge request gets the kernel's most":                 {podOf(uses(list("1000", ""), nil)), corev1.PodQOSBurstable, Resources{CPUShares: 262144}},
		"the largest init container counts if larger":           {withInit, corev1.PodQOSGuaranteed, Resources{CPUShares: 2048, CPUQuotaMicros: 200_000, MemoryBytes: 64 * mi}},
		"a sidecar adds to the containers":                      {withSidecar, corev1.PodQOSGuaranteed, Resources{CPUShares: 1024, CPUQuotaMicros: 100_000, MemoryBytes: 128 * mi}},
		"overhead adds":                                         {withOverhead, corev1.PodQOSGuaranteed, Resources{CPUShares: 614, CPUQuotaMicros: 60_000, MemoryBytes: 80 * mi}},
		"resources of the pod count instead of its containers'": {whole, corev1.PodQOSBurstable, Resources{CPUShares: 1024, CPUQuotaMicros: 200_000, MemoryBytes: 200 * mi}},
		"huge pages are limited to the request":                 {huge, corev1.PodQOSGuaranteed, Resources{CPUShares: 1024, CPUQuotaMicros: 100_000, MemoryBytes: mi, HugePages: map[int64]int64{2 * mi: 8 * mi}}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want.HugePages == nil {
				c.want.HugePages = map[int64]int64{}
			}
			if diff := cmp.Diff(c.want, PodResources(c.pod, c.qos)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
