package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Pids lists the processes of a group and of those below it. A group that does
// not exist has none.
func (t *Tree) Pids(group string) ([]int, error) {
	pids, err := t.layout.pids(group)
	if err = ignoreGone(err); err != nil {
		return nil, fmt.Errorf("cannot list processes of cgroup %s: %w", group, err)
	}
	return pids, nil
}

// Kill kills all processes of a group and of those below it, and returns when
// they have ended. group is a pod's path or one below it.
func (t *Tree) Kill(ctx context.Context, group string) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if err := t.layout.kill(group); err != nil {
			return fmt.Errorf("cannot kill the processes of cgroup %s: %w", group, err)
		}
		pids, err := t.Pids(group)
		if err != nil || len(pids) == 0 {
			return err
		}
		if !pause(ctx, wait) {
			return fmt.Errorf("cannot kill the processes of cgroup %s: %s live on: %w", group, describe(pids), ctx.Err())
		}
	}
}

// Remove removes a pod's group with all below it. Processes must have been killed;
// those that are about to vanish are waited for until ctx ends.
func (t *Tree) Remove(ctx context.Context, p Pod) error {
	if err := t.remove(ctx, p.Path); err != nil {
		return err
	}
	if p.QOS == corev1.PodQOSBurstable {
		t.weigh(p.UID, 0)
	}
	return nil
}

func (t *Tree) remove(ctx context.Context, group string) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		var errs []error
		for _, dir := range t.layout.dirs(group) {
			errs = append(errs, removeAll(dir))
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || !pause(ctx, wait) {
			pids, _ := t.Pids(group)
			if len(pids) > 0 {
				return fmt.Errorf("cannot remove cgroup %s: %s still in it", group, describe(pids))
			}
			return fmt.Errorf("cannot remove cgroup %s: %w", group, explain(err))
		}
	}
}

// removeAll removes a group of one hierarchy, those below first.
func removeAll(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	entries, readErr := os.ReadDir(dir)
	if readErr != nil {
		return ignoreGone(readErr)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// Cleanup kills everything in the root group and removes it. The Tree must not
// be used afterwards.
func (t *Tree) Cleanup(ctx context.Context) error {
	if err := t.Kill(ctx, t.root); err != nil {
		return err
	}
	return t.remove(ctx, t.root)
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// describe names processes: "12 (sleep), 13 (sh) and 40 more".
func describe(pids []int) string {
	const most = 5
	var names []string
	for _, pid := range pids[:min(len(pids), most)] {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			names = append(names, strconv.Itoa(pid))
			continue
		}
		names = append(names, fmt.Sprintf("%d (%s)", pid, strings.TrimSpace(string(comm))))
	}
	text := "processes " + strings.Join(names, ", ")
	if more := len(pids) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func killPid(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot kill process %d: %w", pid, err)
	}
	return nil
}
