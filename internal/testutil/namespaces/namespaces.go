// Package namespaces runs a package's tests in namespaces of their own, so that no
// link, firewall rule or mount of a test can reach the machine. It must not be
// used outside tests.
package namespaces

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

// insideEnv marks the copy of the test program that is in its namespaces.
const insideEnv = "BERTH_TEST_INSIDE"

// Main is what TestMain calls: it runs the tests, as root in a mount and a network
// namespace of their own, and then end, if that is not nil. It returns the code
// to exit with.
func Main(m *testing.M, end func(context.Context) error) int {
	switch {
	case os.Geteuid() != 0: // most skip
	case os.Getenv(insideEnv) == "":
		return Again(&syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}, insideEnv+"=1")
	default:
		if err := LoopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if end != nil {
		if err := end(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "cannot clean up after the tests:", err)
			return 1
		}
	}
	return code
}

// Again runs this program again with the same arguments, with more in its
// environment and as attr says, and returns its exit code. Mounts are private to
// a mount namespace that is in attr.Unshareflags, and not in attr.Cloneflags.
func Again(attr *syscall.SysProcAttr, env ...string) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attr
	attr.Pdeathsig = syscall.SIGKILL
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot run the tests in namespaces of their own:", err)
		return 1
	}
	return 0
}

// Init runs this program again with the same arguments and with more in its
// environment, and returns its exit code. Meanwhile it reaps what becomes its
// child, as the init of a machine does: it is for the first process of a PID
// namespace.
func Init(env ...string) int {
	again := exec.Cmd{Env: append(os.Environ(), env...)}
	program, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env:   again.Environ(), // of two values the later one
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err != nil && !errors.Is(err, syscall.EINTR):
			return 1
		case pid == program.Pid && status.Exited():
			return status.ExitStatus()
		case pid == program.Pid:
			fmt.Fprintln(os.Stderr, "the tests ended by", status.Signal())
			return 1
		}
	}
}

// LoopbackUp sets up the loopback interface of a new network namespace.
func LoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("cannot set up the loopback interface: %w", err)
	}
	return nil
}
