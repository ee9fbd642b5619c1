package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/testutil/namespaces"
)

// roleEnv says what a copy of the test program is.
const (
	roleEnv   = "BERTH_IT_ROLE"
	roleInit  = "init"  // the first process of the namespaces that tests run in
	roleTests = "tests" // runs the tests
	roleAgent = "agent" // an agent of its own that can be killed
	markEnv   = "BERTH_IT_MARK"
)

// The tests run in namespaces of their own: what they make of mounts, links,
// firewall rules and processes can reach nobody and is easy to count, and all of
// it goes when they are killed.
func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case roleInit:
		os.Exit(beInit())
	case roleAgent:
		os.Exit(beAgent())
	case roleTests:
		os.Exit(runTests(m))
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run()) // which skips
	}
	mark := strconv.Itoa(os.Getpid())
	code := namespaces.Again(&syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
	}, roleEnv+"="+roleInit, markEnv+"="+mark)
	if removeCgroups(mark) && code == 0 {
		fmt.Fprintln(os.Stderr, "cgroups of the tests were left")
		code = 1
	}
	os.Exit(code)
}

// removeCgroups removes what tests that were killed left; their processes have
// ended with their namespace.
func removeCgroups(mark string) bool {
	left, _ := filepath.Glob("/sys/fs/cgroup/*" + cgroupPrefix + mark + "-*")
	for _, root := range left {
		var groups []string
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		for i := len(groups) - 1; i >= 0; i-- {
			_ = os.Remove(groups[i])
		}
	}
	return len(left) > 0
}

// beInit prepares the namespaces and runs the tests in them.
func beInit() int {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "cannot prepare the namespaces of the tests:", err)
		return 1
	}
	return namespaces.Init(roleEnv + "=" + roleTests)
}

// hostIP is the address of the machine that tests run on, as pods see it.
const hostIP = "192.0.2.2"

func prepare() error {
	// A wire to nowhere stands for the machine's network card.
	wire := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "nowhere"}
	address, err := netlink.ParseAddr(hostIP + "/24")
	if err != nil {
		return err
	}
	return errors.Join(
		namespaces.LoopbackUp(), netlink.LinkAdd(wire), netlink.AddrAdd(wire, address), netlink.LinkSetUp(wire),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		unix.Mount("run", "/run", "tmpfs", 0, "mode=755"),
	)
}

func runTests(m *testing.M) int {
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "the node that tests share:", err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
