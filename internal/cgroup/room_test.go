package cgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	v2 "github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// boxedEnv makes the test binary berth in a container: the group it is in is the
// root of its cgroup namespace.
const boxedEnv = "BERTH_TEST_BOXED"

func beBoxed() int {
	if err := boxed(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// boxed limits a pod and prints what is in force.
func boxed() error {
	// The kernel refuses to mount what it takes for the same thing on top.
	if err := unix.Unmount(v2.UnifiedMountpoint, unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Mount("none", v2.UnifiedMountpoint, "cgroup2", 0, ""); err != nil {
		return err
	}
	for range 2 { // an agent that starts again finds the room made
		tree, err := Open(Config{})
		if err != nil {
			return err
		}
		p, err := tree.Ensure("a", corev1.PodQOSBurstable, Resources{MemoryBytes: 64 << 20, CPUQuotaMicros: 50_000, Pids: 10})
		if err != nil {
			return err
		}
		for _, name := range []string{"memory.max", "cpu.max", "pids.max"} {
			b, err := os.ReadFile(filepath.Join(tree.layout.main(p.Path), name))
			if err != nil {
				return err
			}
			fmt.Printf("%s ", strings.TrimSpace(string(b)))
		}
		fmt.Println(tree.Missing())
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	fmt.Print(string(own))
	return err
}

// In a container the root of the cgroups holds processes, and v2 allows no limits
// below a group that does.
func TestLimitsHoldInsideAContainer(t *testing.T) {
	tree := open(t) // its root's parents have all controllers
	if tree.Layout() != "v2" {
		t.Skip("cgroup v1 allows limits below groups with processes")
	}
	m, err := tree.layout.manager(tree.root+"/box", &cgroups.Resources{SkipDevices: true})
	if err == nil {
		err = m.Apply(-1)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(m.Path(""))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), boxedEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(dir.Fd()),
		Unshareflags: unix.CLONE_NEWCGROUP | unix.CLONE_NEWNS,
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const limits = "67108864 50000 100000 10 []\n"
	if want := limits + limits + "0::/init\n"; string(out) != want {
		t.Errorf("it prints %q, want %q", out, want)
	}
}
