package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Teardown unmounts and removes all volumes of the pod, whatever state they are
// in; its containers must have ended. It needs nothing but the uid. It is no
// error if there are none.
func (m *Manager) Teardown(ctx context.Context, uid types.UID) error {
	done, err := m.enter(ctx, uid)
	if err != nil {
		return err
	}
	defer done()
	return m.teardown(uid)
}

// RemovePod does what Teardown does, and removes the pod's folder.
func (m *Manager) RemovePod(ctx context.Context, uid types.UID) error {
	done, err := m.enter(ctx, uid)
	if err != nil {
		return err
	}
	defer done()
	if err := m.teardown(uid); err != nil {
		return err
	}
	if err := remove(m.Pod(uid), 0); err != nil {
		return fmt.Errorf("cannot remove folder of pod %s: %w", uid, err)
	}
	return nil
}

func (m *Manager) teardown(uid types.UID) error {
	// Sub-paths first: they are parts of volumes.
	if err := remove(m.subPaths(uid), 3); err != nil {
		return fmt.Errorf("cannot remove volumes of pod %s: %w", uid, err)
	}
	if err := remove(m.volumes(uid), 2); err != nil {
		return fmt.Errorf("cannot remove volumes of pod %s: %w", uid, err)
	}
	return nil
}

// remove takes away the tree at path with all that is mounted in it. It removes
// nothing that is in a mount: what can't be unmounted stays, and is an error.
// This package mounts at most so many levels below path; looking there first
// spares reading the kernel's table of all mounts.
func remove(path string, levels int) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := unmountLevels(path, levels); err != nil {
		return err
	}
	err := removeTree(path)
	if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	// Something else is mounted in there; containers may have done it.
	if err := unmountAll(path); err != nil {
		return err
	}
	return removeTree(path)
}

// unmountLevels unmounts what is mounted at path and so many levels below it.
func unmountLevels(path string, levels int) error {
	if err := unmount(path); err != nil || levels == 0 {
		return err
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			continue
		}
		if err := unmountLevels(filepath.Join(path, e.Name()), levels-1); err != nil {
			return err
		}
	}
	return nil
}

// unmountAll unmounts all that the kernel says is mounted at or below path. The
// highest goes first and takes what is mounted in it along: the other way round,
// a mount in a bound folder of the host would be unmounted on the host too.
func unmountAll(path string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return fmt.Errorf("cannot read mounts: %w", err)
	}
	slices.SortFunc(mounts, func(a, b *mountinfo.Info) int {
		return strings.Count(a.Mountpoint, "/") - strings.Count(b.Mountpoint, "/")
	})
	for _, mount := range mounts {
		if err := unmount(mount.Mountpoint); err != nil {
			return err
		}
	}
	return nil
}
