package podconfig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	upstreamoom "k8s.io/kubernetes/pkg/kubelet/qos"
	upstreamenv "k8s.io/kubernetes/pkg/kubelet/util/env"
	upstreamsecurity "k8s.io/kubernetes/pkg/securitycontext"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// OOM scores are the kubelet's, for any pod.
func TestOOMScoresAreUpstreams(t *testing.T) {
	const machine = 4 << 30
	amounts := rapid.SampledFrom([]string{"", "", "0", "1", "100m", "1Mi", "64Mi", "1Gi", "4Gi", "9Gi"})
	list := func(t *rapid.T, label string) corev1.ResourceList {
		var l corev1.ResourceList
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "example.org/thing"} {
			if a := amounts.Draw(t, label+string(name)); a != "" {
				if l == nil {
					l = corev1.ResourceList{}
				}
				l[name] = resource.MustParse(a)
			}
		}
		return l
	}
	needs := func(t *rapid.T, label string) corev1.ResourceRequirements {
		r := corev1.ResourceRequirements{Requests: list(t, label+" requests ")}
		if rapid.Bool().Draw(t, label+" same") {
			r.Limits = r.Requests
		} else {
			r.Limits = list(t, label+" limits ")
		}
		return r
	}
	rapid.Check(t, func(t *rapid.T) {
		pod := &corev1.Pod{}
		for i := range rapid.IntRange(0, 2).Draw(t, "inits") {
			c := corev1.Container{Name: string(rune('a' + i)), Resources: needs(t, "init")}
			if rapid.Bool().Draw(t, "sidecar") {
				c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: string(rune('m' + i)), Resources: needs(t, "main")})
		}
		if rapid.Bool().Draw(t, "pod level") {
			pod.Spec.Resources = ptr.To(needs(t, "pod"))
		}
		if rapid.Bool().Draw(t, "critical") {
			pod.Spec.PriorityClassName = "system-node-critical"
			pod.Spec.Priority = ptr.To(rapid.SampledFrom([]int32{0, 2000000000, 2000001000}).Draw(t, "priority"))
		}
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				c := &containers[i]
				got, want := oomScoreAdj(pod, c, machine), upstreamoom.GetContainerOOMScoreAdjust(pod, c, machine)
				if got != int64(want) {
					t.Fatalf("container %s: score %d, upstream %d", c.Name, got, want)
				}
			}
		}
	})
}

// Files of environment variables mean what they mean to the kubelet, however
// odd they are.
func TestEnvFilesAreReadAsUpstreamDoes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	pieces := rapid.SampledFrom([]string{"K", "K='", "='", "'", "'\n", "=", " ", "\t", "\n", "\r\n", "#", "a", "A='b'\n", "K='v'", "\r"})
	rapid.Check(t, func(t *rapid.T) {
		content := strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(t, "content"), "")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := envFileValue([]byte(content), "K")
		want, wantErr := upstreamenv.ParseEnv(file, "K")
		if got != want || (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %q, %v; upstream %q, %v", content, got, err, want, wantErr)
		}
	})
}

// What containers may not see is what the kubelet hides, but for files of the
// machine's own CPUs, which are facts.
func TestHiddenPathsAreUpstreams(t *testing.T) {
	hidden := slices.DeleteFunc(slices.Clone(upstreamsecurity.ConvertToRuntimeMaskedPaths(nil)), func(path string) bool {
		return strings.HasPrefix(path, "/sys/devices/system/cpu/")
	})
	if !slices.Equal(maskedPaths, hidden) {
		t.Errorf("masked %q, upstream %q", maskedPaths, hidden)
	}
	if want := upstreamsecurity.ConvertToRuntimeReadonlyPaths(nil); !slices.Equal(readonlyPaths, want) {
		t.Errorf("read-only %q, upstream %q", readonlyPaths, want)
	}
}
