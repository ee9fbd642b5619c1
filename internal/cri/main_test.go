package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// insideEnv marks the copy of the test program that runs in namespaces of its
// own, so that no bridge, rule or mount of a test can reach the machine.
const insideEnv = "BERTH_CRI_TEST_INSIDE"

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv(insideEnv) != "" {
		os.Exit(runTests(m))
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// Unshared, not cloned: mounts are then made private to the new namespace.
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:    syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "cannot run the tests in namespaces of their own:", err)
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func runTests(m *testing.M) int {
	if os.Geteuid() == 0 {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "cannot set up the loopback interface:", err)
			return 1
		}
	}
	code := m.Run()
	if err := stack.close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "cannot clean up after the tests:", err)
		return 1
	}
	return code
}
