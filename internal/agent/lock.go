package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another agent works on the same root.
var ErrInUse = errors.New("another berth runs on this root")

// A process that was killed holds its locks until the kernel has taken it apart,
// which takes a moment when it was busy.
const (
	dyingPatience = 5 * time.Second
	dyingPoll     = 5 * time.Millisecond
)

// lockRoot makes this process the only agent of a root until the file is closed.
// It waits for one that is dying.
func lockRoot(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the root: %w", err)
	}
	for began := time.Now(); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor fits
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		owner := readOwner(f)
		if time.Since(began) > dyingPatience || !dying(owner) {
			f.Close()
			return nil, fmt.Errorf("%w (process %s)", ErrInUse, owner)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(dyingPoll):
		}
	}
	if !isAt(f, path) {
		f.Close()
		return nil, fmt.Errorf("%w (it was just removed)", ErrInUse)
	}
	// Only for the message above; the lock itself is the kernel's.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	}
	return f, nil
}

// isAt says whether f is what path names, and not what it named before the root
// was cleaned up.
func isAt(f *os.File, path string) bool {
	mine, err1 := f.Stat()
	now, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(mine, now)
}

// keepLock keeps the lock that f holds beyond the closing of f, until release.
func keepLock(f *os.File) (release func(), err error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot keep the lock of the root: %w", err)
	}
	return func() { unix.Close(fd) }, nil
}

// readOwner is the process id in a lock file.
func readOwner(f *os.File) string {
	owner := make([]byte, 32)
	n, _ := f.ReadAt(owner, 0)
	return strings.TrimSpace(string(owner[:n]))
}

// killed is SIGKILL in the signal masks of /proc.
const killed = 1 << (uint(unix.SIGKILL) - 1)

// dying says that a process has been killed or has ended.
func dying(pid string) bool {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			if mask, err := strconv.ParseUint(value, 16, 64); err == nil && mask&killed != 0 {
				return true
			}
		}
	}
	return false
}
