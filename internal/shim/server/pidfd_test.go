package server

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Who may not trace a process is shown an exit code of 0, whatever it was: that is
// no exit code. Zombies of another user are looked at with the capability and
// without.
func TestZombieOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs a process as another user")
	}
	for command, want := range map[string]int{"exit 7": 7, "exit 0": 0} {
		cmd := exec.Command("/bin/sh", "-c", command)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		st, err := readStat(pid)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := exitOfZombie(pid, st.ticks); !ok || !got.known || got.wait.ExitStatus() != want {
			t.Errorf("%q: %+v, %v, want %d", command, got, ok, want)
		}
		weak := make(chan exitStatus, 1)
		go func() {
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			if err := dropCapability(capSysPtrace); err != nil {
				t.Error(err)
			}
			got, _ := exitOfZombie(pid, st.ticks)
			weak <- got
		}()
		if got := <-weak; got.known {
			t.Errorf("%q: without the right to know, its exit is said to be %d", command, got.code())
		}
		_ = cmd.Wait()
	}
}

// dropCapability takes a capability from the calling thread.
func dropCapability(number int) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	data[number/32].Effective &^= 1 << (number % 32)
	return unix.Capset(&head, &data[0])
}
