package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Orphans are reaped all the time while libcontainer asks helpers of its own,
// whose ends are for libcontainer.
func TestHelpersOfLibcontainerAreNotReaped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a user namespace")
	}
	holder := exec.Command("sleep", "infinity")
	ids := []syscall.SysProcIDMap{{HostID: 100_000, Size: 1000}}
	holder.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Pdeathsig: syscall.SIGKILL,
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		holder.Process.Kill()
		holder.Wait()
	}()
	// Those of a path below /proc are read without a process.
	path := filepath.Join(t.TempDir(), "user")
	if err := os.Symlink(fmt.Sprintf("/proc/%d/ns/user", holder.Process.Pid), path); err != nil {
		t.Fatal(err)
	}
	s := &Server{limits: &limits{}}
	defer s.reapAllTheTime()()
	for range 30 {
		_, err := s.libcontainerConfig("c", "/bundle", &specs.Spec{
			Root:  &specs.Root{Path: "/rootfs"},
			Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.UserNamespace, Path: path}}},
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Hooks and other programs that somebody waits for are not taken, either.
func TestUndisturbed(t *testing.T) {
	s := &Server{}
	defer s.reapAllTheTime()()
	for range 100 {
		if err := s.undisturbed(exec.Command("/bin/true").Run); err != nil {
			t.Fatal(err)
		}
	}
}

// reapAllTheTime reaps orphans until stop is called.
func (s *Server) reapAllTheTime() (stop func()) {
	done := make(chan struct{})
	var reaper sync.WaitGroup
	reaper.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				s.reapOne()
			}
		}
	})
	return func() {
		close(done)
		reaper.Wait()
	}
}
