package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// quiet is how long nothing must have happened before the agent gives back the
// memory that it needed for the last burst of work.
const quiet = 3 * time.Second

// rest gives memory back whenever a burst of work is over.
func (a *Agent) rest(ctx context.Context) error {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	worked := make(chan struct{}, 1)
	reading := make(chan error, 1)
	go func() {
		reading <- a.feed.read(ctx, func(Update, int) error {
			select {
			case worked <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	for {
		select {
		case err := <-reading:
			return err
		case <-worked:
			timer.Reset(quiet)
		case <-timer.C:
			debug.FreeOSMemory()
			if err := unmapUnused(); err != nil {
				a.log.Debug("cannot give back the memory of unused code", "err", err)
			}
		}
	}
}

// unmapUnused takes the program's own code and constants out of this process's
// memory. What is used comes back, page by page, from the page cache; what was
// only needed to start (most of it: tables of types and of unused packages, read
// in with their neighbours) does not.
func unmapUnused() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	var errs []error
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// 00400000-01a2c000 r-xp 00000000 fe:00 1234   /usr/local/bin/berth
		f := strings.Fields(lines.Text())
		// Only what can't have been written to is the same in the file.
		if len(f) < 6 || f[5] != self || f[1][1] != '-' || f[1][3] != 'p' {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(f[0], "%x-%x", &from, &to); err != nil {
			errs = append(errs, err)
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			errs = append(errs, errno)
		}
	}
	return errors.Join(append(errs, lines.Err())...)
}
