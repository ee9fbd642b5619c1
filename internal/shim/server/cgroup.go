package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
)

// cgroupRoot is where the kernel's control groups are mounted.
const cgroupRoot = "/sys/fs/cgroup"

// ownCgroup says whether path may be a container's cgroup: below a hierarchy,
// not its root.
func ownCgroup(path string) bool {
	if !cleanAbs(path) {
		return false
	}
	rel, ok := strings.CutPrefix(path, cgroupRoot+"/")
	if !ok {
		return false
	}
	if cgroups.IsCgroup2UnifiedMode() {
		return rel != ""
	}
	_, below, ok := strings.Cut(rel, "/") // the first part is the hierarchy
	return ok && below != ""
}

// cgroupManager returns a manager of a container's existing cgroup.
func cgroupManager(paths map[string]string) (cgroups.Manager, error) {
	return manager.NewWithPaths(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, paths)
}

// killCgroup kills every process in the container's cgroup and below, and
// returns when there is none left, or after a while with an error.
func killCgroup(paths map[string]string) error {
	m, err := cgroupManager(paths)
	if err != nil {
		return err
	}
	if !m.Exists() {
		return nil
	}
	end := time.Now().Add(10 * time.Second)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		pids, err := m.GetAllPids()
		if err != nil {
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
				return nil
			}
			return fmt.Errorf("cannot list processes of cgroup: %w", err)
		}
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("cannot empty cgroup: %d processes do not die", len(pids))
		}
		killAll(m.Path(""), m.Path("freezer"), pids)
		time.Sleep(wait)
	}
}

// removeCgroup removes a container's cgroup, in which no process is left, if there
// is one.
func removeCgroup(paths map[string]string) error {
	if len(paths) == 0 {
		return nil
	}
	m, err := cgroupManager(paths)
	if err != nil {
		return err
	}
	if err := m.Destroy(); err != nil {
		return fmt.Errorf("cannot remove cgroup: %w", err)
	}
	return nil
}

// killAll kills pids, all processes of one cgroup. On cgroup v2 the kernel does
// it at once (unified); on v1 the group is frozen meanwhile, where it can be, so
// that it can't fork faster than we kill.
func killAll(unified, freezer string, pids []int) {
	if unified != "" && os.WriteFile(filepath.Join(unified, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	if freezer != "" {
		state := filepath.Join(freezer, "freezer.state")
		if os.WriteFile(state, []byte("FROZEN"), 0) == nil {
			waitFrozen(state)
			if now, err := readPids(freezer); err == nil {
				pids = append(pids, now...)
			}
			defer os.WriteFile(state, []byte("THAWED"), 0) //nolint:errcheck // the group is gone, then
		}
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // ESRCH: it ended meanwhile
	}
}

// waitFrozen waits until a v1 group is frozen, for a tenth of a second at most:
// a process in uninterruptible sleep can hold it up.
func waitFrozen(state string) {
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		b, err := os.ReadFile(state)
		if err != nil || strings.TrimSpace(string(b)) == "FROZEN" {
			return
		}
		// A write makes the kernel look again.
		_ = os.WriteFile(state, []byte("FROZEN"), 0)
	}
}

// readPids lists the processes in the group at path, not below.
func readPids(path string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		if pid > 0 { // 0: of another PID namespace
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// moveSelf moves the shim into the cgroup at path below each hierarchy. It does
// what is possible: a shim in berth's own cgroup works, too, but ends with it.
func moveSelf(path string) error {
	if !strings.HasPrefix(path, "/") || filepath.Clean(path) != path || path == "/" {
		return fmt.Errorf("cannot move to cgroup %q: want an absolute path", path)
	}
	roots := []string{cgroupRoot}
	if !cgroups.IsCgroup2UnifiedMode() {
		var err error
		if roots, err = filepath.Glob(cgroupRoot + "/*"); err != nil {
			return err
		}
	}
	moved := false
	var errs []error
	for _, root := range roots {
		if filepath.Base(root) == "cpuset" {
			continue // a new group has no CPUs, and shares nothing with berth's
		}
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(root, path)
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		moved = true
	}
	if !moved {
		return fmt.Errorf("cannot move to cgroup %q: %w", path, errors.Join(errs...))
	}
	return nil
}
