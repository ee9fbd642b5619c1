package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Cleanup stops all pods without grace and removes everything that berth made:
// containers, networks, rules, cgroups, mounts, the shim, and all below the root
// and the run folder, images and logs included. Call it instead of Run and
// Close. What could not be removed is in the error.
func (a *Agent) Cleanup(ctx context.Context) error {
	// Until the folders are gone, or another agent would settle in them.
	release, err := keepLock(a.lock)
	if err != nil {
		return err
	}
	defer release()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.cri.Run(running) }()
	errs := []error{a.cri.Cleanup(ctx)}
	stop()
	errs = append(errs, ignoreCancel(<-ended))
	uids, err := a.volumes.List()
	errs = append(errs, err)
	for _, uid := range uids {
		errs = append(errs, a.volumes.RemovePod(ctx, uid))
	}
	errs = append(errs, a.shim.Shutdown(ctx), a.cgroups.Cleanup(ctx), a.closers.close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot clean up all, so the files stay: %w", err)
	}
	return errors.Join(removeFolder(a.cfg.Run, ""), removeFolder(a.cfg.Root, a.cfg.lock()))
}

// removeFolder removes a folder of berth's, the file named last, if any, after
// all others: while it is there, no agent settles in the folder. It refuses when
// something is still mounted below, which must not be deleted through the mount.
func removeFolder(dir, last string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("cannot remove %s: %s is still mounted; unmount it and try again", dir, strings.Join(mounts, ", "))
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at a folder of berth's: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); path != last {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	err = os.RemoveAll(dir)
	if errors.Is(err, unix.EBUSY) {
		// Somebody mounted something at the folder itself: that is not berth's.
		if left, readErr := os.ReadDir(dir); readErr == nil && len(left) == 0 {
			return nil
		}
	}
	return err
}

func mountsBelow(dir string) ([]string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
	if err != nil {
		return nil, fmt.Errorf("cannot read the mounts of this machine: %w", err)
	}
	var points []string
	for _, m := range found {
		if m.Mountpoint != real {
			points = append(points, m.Mountpoint)
		}
	}
	return points, nil
}
