package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// exitStatus is how a process ended, as far as the kernel told us.
type exitStatus struct {
	wait  syscall.WaitStatus
	known bool
}

func (e exitStatus) code() int32 {
	switch {
	case !e.known:
		return 0
	case e.wait.Signaled():
		return 128 + int32(e.wait.Signal())
	}
	return int32(e.wait.ExitStatus())
}

func (e exitStatus) signal() int32 {
	if e.known && e.wait.Signaled() {
		return int32(e.wait.Signal())
	}
	return 0
}

// pidStat is what /proc/PID/stat says of a process.
type pidStat struct {
	state  byte
	parent int
	ticks  uint64 // start time in clock ticks since boot: with the pid, it names a process
	exit   int    // wait status; only of a zombie
}

// readStat reads /proc/PID/stat.
func readStat(pid int) (pidStat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return pidStat{}, err
	}
	return parseStat(b)
}

// parseStat takes apart a line of /proc/PID/stat. The command name, field 2,
// is in parentheses and may hold anything, also parentheses.
func parseStat(b []byte) (pidStat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return pidStat{}, errors.New("no command name in stat line")
	}
	f := strings.Fields(string(b[i+1:]))
	// f[0] is field 3, the state.
	if len(f) < 50 || len(f[0]) != 1 {
		return pidStat{}, fmt.Errorf("stat line has %d fields after the name, want at least 50", len(f))
	}
	st := pidStat{state: f[0][0]}
	var err, err2, err3 error
	st.parent, err = strconv.Atoi(f[4-3])
	st.ticks, err2 = strconv.ParseUint(f[22-3], 10, 64)
	st.exit, err3 = strconv.Atoi(f[52-3])
	return st, errors.Join(err, err2, err3)
}

// openPidfd returns a pidfd of pid if it is still the process that started at
// ticks.
func openPidfd(pid int, ticks uint64) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, os.NewSyscallError("pidfd_open", err)
	}
	// The descriptor pins the process, so what stat says afterwards is either
	// of this process or of none.
	st, err := readStat(pid)
	if err == nil && st.ticks != ticks {
		err = fmt.Errorf("pid %d is another process now", pid)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// pidfdInfo is the kernel's struct pidfd_info, first version.
type pidfdInfo struct {
	mask     uint64
	cgroupID uint64
	pid      uint32
	tgid     uint32
	ppid     uint32
	ids      [8]uint32
	exitCode int32
}

const (
	pidfdInfoExit = 1 << 3
	// _IOWR(0xFF, 11, struct pidfd_info), Linux 6.13; exit codes since 6.15.
	pidfdGetInfo = 3<<30 | unsafe.Sizeof(pidfdInfo{})<<16 | 0xFF<<8 | 11
)

// exitOfPidfd asks the kernel how the process behind fd ended. It answers only
// after the process's parent has reaped it.
func exitOfPidfd(fd int) (exitStatus, bool) {
	info := pidfdInfo{mask: pidfdInfoExit}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), pidfdGetInfo, uintptr(unsafe.Pointer(&info)))
	if errno != 0 || info.mask&pidfdInfoExit == 0 {
		return exitStatus{}, false
	}
	return exitStatus{wait: syscall.WaitStatus(info.exitCode), known: true}, true
}

// exitOfZombie reads how a process ended that nobody has reaped yet.
func exitOfZombie(pid int, ticks uint64) (exitStatus, bool) {
	st, err := readStat(pid)
	if err != nil || st.ticks != ticks || st.state != 'Z' {
		return exitStatus{}, false
	}
	// The kernel shows 0 to those who may not trace the process.
	if st.exit == 0 && !mayTrace() {
		return exitStatus{}, false
	}
	return exitStatus{wait: syscall.WaitStatus(st.exit), known: true}, true
}

// mayTrace says that every process shows this thread all of itself.
func mayTrace() bool {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return false
	}
	caps, err := effectiveCaps(string(status))
	return err == nil && caps&(1<<capSysPtrace) != 0
}
