package volume

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

func TestSizeOfVolumesInMemory(t *testing.T) {
	tests := map[string]struct {
		node, podLimit, sizeLimit string
		want                      int64
	}{
		"the node's memory when nothing is said":  {"8Gi", "", "", 8 << 30},
		"the pod's limit":                         {"8Gi", "1Gi", "", 1 << 30},
		"the volume's limit":                      {"8Gi", "1Gi", "1Mi", 1 << 20},
		"never more than the pod's":               {"8Gi", "1Gi", "2Gi", 1 << 30},
		"never more than the node's":              {"8Gi", "", "16Gi", 8 << 30},
		"a limit of zero is none":                 {"8Gi", "", "0", 8 << 30},
		"the kernel's default on an unknown node": {"", "", "", 0},
		"the volume's limit on an unknown node":   {"", "", "1Mi", 1 << 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := podOf(t, "volumes: [{name: v, emptyDir: {medium: Memory}}]")
			allocatable := corev1.ResourceList{}
			if tt.node != "" {
				allocatable[corev1.ResourceMemory] = resource.MustParse(tt.node)
			}
			if tt.podLimit != "" {
				pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(tt.podLimit)}
				pod.Spec.Containers[0].Resources.Requests = pod.Spec.Containers[0].Resources.Limits
			}
			if tt.sizeLimit != "" {
				q := resource.MustParse(tt.sizeLimit)
				pod.Spec.Volumes[0].EmptyDir.SizeLimit = &q
			}
			steps, err := Plan(pod, nil, allocatable)
			if err != nil || steps.Prepare[0].SizeBytes != tt.want {
				t.Errorf("%+v, %v, want %d bytes", steps, err, tt.want)
			}
		})
	}
}

func TestHugePagesAreOfTheRequestedSize(t *testing.T) {
	tests := map[string]struct {
		medium, requests string
		want             int64
		wantErr          string
	}{
		"the one that is requested":  {"HugePages", "{hugepages-2Mi: 4Mi}", 2 << 20, ""},
		"the one that is named":      {"HugePages-1Gi", "{hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi}", 1 << 30, ""},
		"none is requested":          {"HugePages", "{cpu: 1}", 0, "request 0 page sizes"},
		"two are requested":          {"HugePages", "{hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi}", 0, "request 2 page sizes"},
		"another one is requested":   {"HugePages-1Gi", "{hugepages-2Mi: 4Mi}", 0, "no container requests hugepages-1Gi"},
		"what is named is no number": {"HugePages-big", "{hugepages-2Mi: 4Mi}", 0, "names no page size"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := podOf(t, "volumes: [{name: v, emptyDir: {medium: "+tt.medium+"}}]\ncontainers: [{name: app, resources: {requests: "+tt.requests+"}}]")
			steps, err := Plan(pod, nil, nil)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil || steps.Prepare[0].PageBytes != tt.want || steps.Prepare[0].Backing != HugePages {
				t.Errorf("%+v, %v", steps, err)
			}
		})
	}
}

func TestMountPointsInReadOnlyVolumes(t *testing.T) {
	mounts := func(pairs ...string) []corev1.VolumeMount {
		var all []corev1.VolumeMount
		for _, p := range pairs {
			name, rest, _ := strings.Cut(p, "=")
			path, sub, _ := strings.Cut(rest, ":")
			all = append(all, corev1.VolumeMount{Name: name, MountPath: path, SubPath: sub})
		}
		return all
	}
	tests := map[string]struct {
		mounts []corev1.VolumeMount
		want   []string
	}{
		"beside each other":               {mounts("v=/a", "w=/b"), nil},
		"a name that begins the same":     {mounts("v=/a", "w=/ab"), nil},
		"one in the other":                {mounts("v=/a", "w=/a/b/c"), []string{"b/c"}},
		"the other in the one":            {mounts("v=/a/b", "w=/a"), nil},
		"a file's sub-path in it":         {mounts("v=/a", "w=/a/f:x"), []string{"f"}},
		"a mounted sub-path is no volume": {mounts("v=/a:x", "w=/a/b"), nil},
		"nested twice needs one":          {mounts("v=/a", "w=/a/b", "x=/a/b/c", "y=/a/b-c"), []string{"b", "b-c"}},
		"at the root":                     {mounts("v=/", "w=/b/"), []string{"b"}},
		"dots go nowhere":                 {mounts("v=/a", "w=/a/../b"), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{VolumeMounts: tt.mounts}}}}
			if diff := cmp.Diff(tt.want, nested(pod, "v")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestModesAndGroups(t *testing.T) {
	pod := podOf(t, "volumes: [{name: disk}, {name: ram, emptyDir: {medium: Memory}}, {name: conf, configMap: {name: c}}, {name: host, hostPath: {path: /}}]")
	modes := func() []uint32 {
		steps, err := Plan(pod, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var all []uint32
		for _, s := range steps.Prepare {
			if (s.Group != nil) != (pod.Spec.SecurityContext != nil && s.Kind != HostPath) {
				t.Errorf("%s has group %v", s.Name, s.Group)
			}
			all = append(all, s.Mode)
		}
		return all
	}
	if got := modes(); !slices.Equal(got, []uint32{0o777, 0o1777, 0o777, 0o777}) {
		t.Errorf("modes %o", got)
	}
	// The policy means nothing here: no volume outlives its pod.
	for _, policy := range []corev1.PodFSGroupChangePolicy{corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch} {
		group := int64(2000)
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group, FSGroupChangePolicy: &policy}
		if got := modes(); !slices.Equal(got, []uint32{0o2777, 0o3777, 0o2777, 0o777}) {
			t.Errorf("modes with fsGroup %o", got)
		}
	}
}
