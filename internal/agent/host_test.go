package agent

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/podconfig"
)

// A container without a limit is told what the node has, of each resource.
func TestLimitsThatAreNotSetAreTheNodes(t *testing.T) {
	root := t.TempDir()
	h, err := inspectHost("", root)
	if err != nil {
		t.Fatal(err)
	}
	var disk unix.Statfs_t
	var si unix.Sysinfo_t
	var cpus unix.CPUSet
	for _, err := range []error{unix.Statfs(root, &disk), unix.Sysinfo(&si), unix.SchedGetaffinity(0, &cpus)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	for resource, want := range map[string]uint64{
		"limits.cpu": uint64(cpus.Count()), "limits.memory": si.Totalram * uint64(si.Unit),
		"limits.ephemeral-storage": disk.Blocks * uint64(disk.Frsize),
	} {
		ref := &corev1.ResourceFieldSelector{Resource: resource}
		got, err := podconfig.ResourceField(pod, &pod.Spec.Containers[0], ref, h.allocatable)
		if err != nil || got != strconv.FormatUint(want, 10) || want == 0 {
			t.Errorf("%s is %s, want %d: %v", resource, got, want, err)
		}
	}
}
