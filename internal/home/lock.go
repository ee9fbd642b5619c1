package home

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

// Lock makes this process the only one that works on a root.
type Lock struct{ file *os.File }

// Claim makes the folders if they are not there, marks them as berth's and locks
// the root. It waits for a process that is dying. ErrInUse says that another one
// works there, ErrForeign that a folder holds other things. A root that has
// another use is refused.
func (h Home) Claim(ctx context.Context, use Use) (_ *Lock, err error) {
	if err := os.MkdirAll(h.Root, 0o711); err != nil { //nolint:gosec // containers' users pass through it
		return nil, fmt.Errorf("cannot make the root: %w", err)
	}
	// Not even a lock is put into a folder that is somebody else's.
	if _, err := Find(h.Root, h.Run); err != nil {
		return nil, err
	}
	l, err := lock(ctx, h.lock())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	// Once more, for who came first may have made it its own.
	now, err := Find(h.Root, h.Run)
	if err != nil {
		return nil, err
	}
	if now.made() && now.Mark != h.Mark {
		return nil, fmt.Errorf("the root %s has just been made by another process: try again", h.Root)
	}
	if use == Any {
		use = now.known.Use
	}
	if was := now.known.Use; was != use && was != Any {
		return nil, fmt.Errorf("the root %s is %s: give each its own --root, or remove what is there with berth cleanup", h.Root, used[was])
	}
	if err := h.claimRun(); err != nil {
		return nil, err
	}
	// The run folder may be another one since a reboot.
	if m := (marker{Run: h.Run, Mark: h.Mark, Use: use}); m != now.known {
		if err := h.writeMarker(m); err != nil {
			return nil, fmt.Errorf("cannot make the folder berth's: %w", err)
		}
	}
	return l, nil
}

// used tells people what a root is used for.
var used = map[Use]string{Pods: "one of pods that berth run made", CRI: "that of berth cri"}

// Close lets others work on the root.
func (l *Lock) Close() error { return l.file.Close() }

// Keep holds the lock beyond Close, until release.
func (l *Lock) Keep() (release func(), err error) {
	fd, err := unix.FcntlInt(l.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot keep the lock of the root: %w", err)
	}
	return func() { unix.Close(fd) }, nil
}

func lock(ctx context.Context, path string) (*Lock, error) {
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
	return &Lock{f}, nil
}

// isAt says whether f is what path names, and not what it named before the root
// was cleaned up.
func isAt(f *os.File, path string) bool {
	mine, err1 := f.Stat()
	now, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(mine, now)
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
