package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/testutil/namespaces"
)

// roleEnv says what a copy of the test program is.
const (
	roleEnv   = "BERTH_CRI_TEST_ROLE"
	roleInit  = "init"  // the first process of the namespaces that tests run in
	roleTests = "tests" // runs the tests
)

// The tools are built first, as that may need the network. The tests run in
// namespaces of their own: specs bind ports, mount, and list all processes.
func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case roleInit:
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "cannot prepare the namespaces of the tests:", err)
			os.Exit(1)
		}
		os.Exit(namespaces.Init(roleEnv + "=" + roleTests))
	case roleTests:
		os.Exit(m.Run())
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run()) // most skip
	}
	if err := buildTools(); err != nil {
		fmt.Fprintln(os.Stderr, "cannot build critest and crictl:", err)
		os.Exit(1)
	}
	os.Exit(namespaces.Again(&syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
	}, roleEnv+"="+roleInit))
}

func prepare() error {
	return errors.Join(
		namespaces.LoopbackUp(),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		unix.Mount("run", "/run", "tmpfs", 0, "mode=755"),
	)
}

func findTools() (tools, error) {
	dir, err := filepath.Abs("../../.cache/cri")
	return tools{dir: dir}, err
}

func buildTools() error {
	t, err := findTools()
	if err != nil {
		return err
	}
	digest, err := indexByDigest(outside{}).Digest()
	if err != nil {
		return err
	}
	return t.build(digest.String())
}

// outside stands for the test where there is none yet.
type outside struct{ testing.TB }

func (outside) Helper()        {}
func (outside) Fatal(a ...any) { panic(fmt.Sprint(a...)) }
