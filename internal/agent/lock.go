package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another agent works on the same root.
var ErrInUse = errors.New("another berth runs on this root")

// lockRoot makes this process the only agent of a root until the file is closed.
func lockRoot(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the root: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { //nolint:gosec // a descriptor fits
		owner := make([]byte, 32)
		n, _ := f.Read(owner)
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (process %s)", ErrInUse, strings.TrimSpace(string(owner[:n])))
		}
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	// Only for the message above; the lock itself is the kernel's.
	if err := f.Truncate(0); err == nil {
		fmt.Fprintln(f, os.Getpid())
	}
	return f, nil
}
