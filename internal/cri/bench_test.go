package cri

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func benchPod(r *realStack, name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "bench", Uid: newID()},
		Hostname: "bench",
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: r.node.Cgroup,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
}

// BenchmarkSandbox is what RunPodSandbox takes, with its network.
func BenchmarkSandbox(b *testing.B) {
	r := real(b)
	var made, gone time.Duration
	for i := range b.N {
		began := time.Now()
		id, err := r.RunPodSandbox(context.Background(), benchPod(r, fmt.Sprint("sandbox-", i)), "")
		if err != nil {
			b.Fatal(err)
		}
		made += time.Since(began)
		began = time.Now()
		if err := r.RemovePodSandbox(context.Background(), id); err != nil {
			b.Fatal(err)
		}
		gone += time.Since(began)
	}
	b.ReportMetric(float64(made.Microseconds())/1000/float64(b.N), "ms/run")
	b.ReportMetric(float64(gone.Microseconds())/1000/float64(b.N), "ms/remove")
}

// BenchmarkPod is a sandbox with one container, from nothing to its first line
// of output, and back to nothing.
func BenchmarkPod(b *testing.B) {
	for name, profile := range map[string]*runtimeapi.SecurityProfile{"unconfined": nil, "seccomp": {}} {
		b.Run(name, func(b *testing.B) {
			r := real(b)
			var parts [6]time.Duration
			for i := range b.N {
				at := time.Now()
				lap := func(i int) { parts[i] += time.Since(at); at = time.Now() }
				must := func(err error) {
					if err != nil {
						b.Fatal(err)
					}
				}
				config := benchPod(r, fmt.Sprint("pod-", i))
				config.LogDirectory = b.TempDir()
				sb, err := r.RunPodSandbox(context.Background(), config, "")
				must(err)
				lap(0)
				c, err := r.CreateContainer(context.Background(), sb, &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
					Image:    &runtimeapi.ImageSpec{Image: insideImage},
					Args:     []string{"on-signal"},
					LogPath:  "app.log",
					Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
						NamespaceOptions: config.Linux.SecurityContext.NamespaceOptions, Seccomp: profile,
					}},
				}, config)
				must(err)
				lap(1)
				must(r.StartContainer(context.Background(), c))
				lap(2)
				for log := config.LogDirectory + "/app.log"; ; time.Sleep(100 * time.Microsecond) {
					if raw, err := os.ReadFile(log); err == nil && len(raw) > 0 {
						break
					}
				}
				lap(3)
				must(r.StopContainer(context.Background(), c, 10))
				lap(4)
				must(r.RemovePodSandbox(context.Background(), sb))
				lap(5)
			}
			for i, part := range []string{"sandbox", "create", "start", "output", "stop", "remove"} {
				b.ReportMetric(float64(parts[i].Microseconds())/1000/float64(b.N), "ms/"+part)
			}
		})
	}
}
