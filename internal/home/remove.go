package home

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Remove removes what berth made in both folders, and the folders themselves if
// nothing else is in them; left names what else there is. Only the holder of the
// root's Lock may call it, after all that works there has ended. A mount that is
// still below one of the folders stops it before anything goes.
func (h Home) Remove() (left []string, err error) {
	for _, dir := range []string{h.Run, h.Root} {
		mounts, err := mountsBelow(dir)
		if err != nil {
			return nil, err
		}
		if len(mounts) > 0 {
			return nil, fmt.Errorf("cannot remove %s: %s is still mounted; unmount it and try again", dir, strings.Join(mounts, ", "))
		}
	}
	inRun, err := remove(h.Run, h.madeInRun())
	if err != nil {
		return nil, err
	}
	inRoot, err := remove(h.Root, h.madeInRoot())
	return append(inRun, inRoot...), err
}

// remove removes the paths in order, then dir if it is empty.
func remove(dir string, paths []string) (left []string, err error) {
	for _, path := range paths {
		// In order: what could not be removed keeps the marker and the lock there.
		if err := os.RemoveAll(path); err != nil {
			return nil, fmt.Errorf("cannot remove all: %w", err)
		}
	}
	err = os.Remove(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.Is(err, unix.EBUSY):
		return nil, nil // somebody mounted something at the folder itself: that is not berth's
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		names, err := others(dir, nil)
		for i := range names {
			names[i] = dir + "/" + names[i]
		}
		return names, err
	}
	return nil, err
}

// mountsBelow are the mounts in dir, without one at dir itself.
func mountsBelow(dir string) ([]string, error) {
	found, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("cannot read the mounts of this machine: %w", err)
	}
	var points []string
	for _, m := range found {
		if m.Mountpoint != dir {
			points = append(points, m.Mountpoint)
		}
	}
	return points, nil
}
