package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v2 "github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"
)

// leaf is where the processes go that were in the mounted group itself.
const leaf = "/init"

// makeRoom lets groups below the one that is mounted have limits. Where that is
// not the kernel's own root, as in a container with a cgroup namespace, v2 allows
// limits below it only while it holds no process itself; in a container it holds
// all of them. They are moved to a leaf below it, as container tools do; what
// limits the container goes on to limit them. It returns how many were moved.
func (u unified) makeRoom() (moved int, err error) {
	if _, err := os.Stat(u.file("", "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the kernel's own root, which the rule does not bind
	}
	can, err := u.lists("cgroup.controllers", "memory")
	if err != nil || !can {
		return 0, err // nothing to be had by it
	}
	if does, err := u.lists("cgroup.subtree_control", "memory"); err != nil || does {
		return 0, err
	}
	const rounds = 100 // they may fork meanwhile
	for range rounds {
		procs, err := os.ReadFile(u.file("", "cgroup.procs"))
		if err != nil {
			return moved, err
		}
		pids := strings.Fields(string(procs))
		if len(pids) == 0 {
			return moved, nil
		}
		if err := os.MkdirAll(u.main(leaf), 0o755); err != nil { //nolint:gosec // as all cgroups
			return moved, err
		}
		for _, pid := range pids {
			if pid == "0" {
				return moved, errors.New("it holds processes of another PID namespace, which cannot be moved")
			}
			err := os.WriteFile(u.file(leaf, "cgroup.procs"), []byte(pid), 0)
			if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return moved, fmt.Errorf("cannot move process %s to %s: %w", pid, leaf, err)
			}
			moved++
		}
	}
	return moved, errors.New("its processes fork faster than they can be moved")
}

// lists says whether a file of the mounted group names a controller.
func (u unified) lists(name, controller string) (bool, error) {
	b, err := os.ReadFile(u.file("", name))
	return slices.Contains(strings.Fields(string(b)), controller), err
}

func (u unified) file(group, name string) string {
	return filepath.Join(v2.UnifiedMountpoint, group, name)
}
