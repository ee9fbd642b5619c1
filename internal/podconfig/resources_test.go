package podconfig

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// spec decodes a pod's spec from YAML.
func spec(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestResourcesOfContainers(t *testing.T) {
	tests := map[string]struct {
		spec string
		want string // shares quota memory
	}{
		"nothing": {"containers: [{name: app}]", "2 0 0"},
		"requests are weights": {
			"containers: [{name: app, resources: {requests: {cpu: 250m, memory: 64Mi}}}]", "256 0 0"},
		"a limit stands in for a request": {
			"containers: [{name: app, resources: {limits: {cpu: 500m, memory: 1Mi}}}]", "512 50000 1048576"},
		"both": {
			"containers: [{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]", "1024 200000 0"},
		"the least": {
			"containers: [{name: app, resources: {requests: {cpu: 1m}, limits: {cpu: 1m}}}]", "2 1000 0"},
		"the most": {
			"containers: [{name: app, resources: {requests: {cpu: 1000}}}]", "262144 0 0"},
		"the pod's own limits hold for all": {
			"resources: {requests: {cpu: 1}, limits: {cpu: 2, memory: 4Mi}}\ncontainers: [{name: app}, {name: b, resources: {limits: {memory: 1Mi}}}]", "2048 200000 4194304"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := spec(t, tt.spec)
			c := linuxResources(pod, &pod.Spec.Containers[0], facts().Facts)
			if got := fmt.Sprint(c.CpuShares, c.CpuQuota, c.MemoryLimitInBytes); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestSwapIsOffOnBothHierarchies(t *testing.T) {
	pod := spec(t, "containers: [{name: app, resources: {limits: {memory: 1Mi}}}]")
	f := facts().Facts
	f.CgroupV2, f.SwapAccounting = true, true
	r := linuxResources(pod, &pod.Spec.Containers[0], f)
	want := map[string]string{"memory.oom.group": "1", "memory.min": "0", "memory.low": "0", "memory.swap.max": "0"}
	if diff := cmp.Diff(want, r.Unified); diff != "" || r.MemorySwapLimitInBytes != 0 {
		t.Errorf("v2: swap %d (-want +got):\n%s", r.MemorySwapLimitInBytes, diff)
	}
	f.CgroupV2 = false
	r = linuxResources(pod, &pod.Spec.Containers[0], f)
	if len(r.Unified) > 0 || r.MemorySwapLimitInBytes != 1<<20 {
		t.Errorf("v1: %v", r)
	}
	f.SwapAccounting = false
	r = linuxResources(pod, &pod.Spec.Containers[0], f)
	if r.MemorySwapLimitInBytes != 0 {
		t.Errorf("v1 without accounting: %v", r)
	}
}

func TestHugePageSizes(t *testing.T) {
	for name, want := range map[corev1.ResourceName]string{
		"hugepages-2Mi": "2MB", "hugepages-1Gi": "1GB", "hugepages-64Ki": "64KB", "hugepages-x": "", "memory": "",
	} {
		if got, ok := hugePageSize(name); got != want || ok != (want != "") {
			t.Errorf("%s is %q, %v", name, got, ok)
		}
	}
}
