package home

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// endPatience is how long an agent that is asked to end by a signal may take.
const endPatience = 3 * time.Second

// Owner is the process of the agent that works on the root; empty if there is
// none.
func (h Home) Owner() string {
	f, err := os.Open(h.lock())
	if err != nil {
		return ""
	}
	defer f.Close()
	if pid := readOwner(f); holdsLock(pid, f) {
		return pid
	}
	return ""
}

// EndOwner ends the process of the agent that works on the root: by SIGTERM,
// then by SIGKILL. Its pods run on. It does nothing if there is none, or if
// another process than the one named in the lock file holds the lock.
func (h Home) EndOwner(ctx context.Context) error {
	f, err := os.Open(h.lock())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look who runs on the root: %w", err)
	}
	defer f.Close()
	owner := readOwner(f)
	pid, err := strconv.Atoi(owner)
	if err != nil {
		return nil //nolint:nilerr // nobody wrote a process id there yet
	}
	// What fd names stays that process, whoever gets its number later.
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot end the agent (process %d): %w", pid, err)
	}
	defer unix.Close(fd)
	if !holdsLock(owner, f) || pid == os.Getpid() {
		return nil
	}
	for _, signals := range [][]unix.Signal{{unix.SIGTERM, unix.SIGCONT}, {unix.SIGKILL}} {
		for _, sig := range signals {
			if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("cannot end the agent (process %d): %w", pid, err)
			}
		}
		for began := time.Now(); time.Since(began) < endPatience && ctx.Err() == nil; time.Sleep(dyingPoll) {
			if !holdsLock(owner, f) {
				return nil
			}
		}
	}
	return errors.Join(fmt.Errorf("the agent (process %d) does not end", pid), ctx.Err())
}

// holdsLock says whether a process holds a lock on the file.
func holdsLock(pid string, f *os.File) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil { //nolint:gosec // a descriptor fits
		return false
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return false
	}
	defer locks.Close()
	inode := ":" + strconv.FormatUint(st.Ino, 10)
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
		fields := strings.Fields(lines.Text())
		if len(fields) >= 6 && fields[1] == "FLOCK" && fields[4] == pid && strings.HasSuffix(fields[5], inode) {
			return true
		}
	}
	return false
}
