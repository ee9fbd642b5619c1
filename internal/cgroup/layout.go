package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "github.com/opencontainers/cgroups/fs"
	v2 "github.com/opencontainers/cgroups/fs2"
)

// layout is what differs between the versions of cgroups. Groups are named by
// their path below the mounts, with a leading slash.
type layout interface {
	String() string
	// manager is the library's handle of a group. Nothing is created yet.
	manager(group string, r *cgroups.Resources) (cgroups.Manager, error)
	// dirs lists the group's folder in each hierarchy, with the name of the
	// hierarchy for people.
	dirs(group string) map[string]string
	// main is the folder whose processes are the group's.
	main(group string) string
	// memoryDir is the group's folder of the memory controller.
	memoryDir(group string) string
	// oomKills counts in the group without those below.
	oomKills(group string) (uint64, error)
	// memory picks what the statistics call differently, in bytes.
	memory(stats map[string]uint64) (inactiveFile, rss uint64)
	// pids lists the processes of the group and of those below it.
	pids(group string) ([]int, error)
	// kill sends SIGKILL to all processes of the group and below, once.
	kill(group string) error
	// missing lists controllers that pods' limits need and the kernel does not
	// offer here.
	missing(group string) ([]string, error)
	// hasHugePages reports whether huge pages can be limited.
	hasHugePages() bool
}

// detect finds out what is mounted.
func detect(root string) (layout, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return unified{}, nil
	}
	m, err := v1.NewManager(&cgroups.Cgroup{Path: root, Resources: &cgroups.Resources{SkipDevices: true}}, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot find cgroup mounts: %w (mount cgroup v2 on /sys/fs/cgroup, or the v1 controllers below it)", err)
	}
	l := legacy{mounts: map[string]string{}}
	for name, dir := range m.GetPaths() {
		l.mounts[name] = strings.TrimSuffix(dir, root)
	}
	if l.mounts["freezer"] == "" {
		return nil, errors.New("cannot use cgroup v1: the freezer controller is not mounted on /sys/fs/cgroup/freezer, and without it processes cannot be stopped reliably")
	}
	return l, nil
}

// legacy is cgroup v1, with or without v2 mounted beside it.
type legacy struct {
	mounts map[string]string // controller to mount point; "" is v2 in the hybrid form
}

func (l legacy) String() string {
	if _, hybrid := l.mounts[""]; hybrid {
		return "v1 (hybrid)"
	}
	return "v1"
}

func (l legacy) paths(group string) map[string]string {
	paths := make(map[string]string, len(l.mounts))
	for name, mount := range l.mounts {
		paths[name] = filepath.Join(mount, group)
	}
	return paths
}

func (l legacy) manager(group string, r *cgroups.Resources) (cgroups.Manager, error) {
	return v1.NewManager(&cgroups.Cgroup{Path: group, Resources: r}, l.paths(group))
}

func (l legacy) dirs(group string) map[string]string {
	dirs := map[string]string{}
	for name, dir := range l.paths(group) {
		if name == "" {
			name = "unified"
		}
		dirs[name] = dir
	}
	return dirs
}

func (l legacy) main(group string) string { return filepath.Join(l.mounts["freezer"], group) }

func (l legacy) memoryDir(group string) string { return filepath.Join(l.mounts["memory"], group) }

func (l legacy) oomKills(group string) (uint64, error) { return v1.OOMKillCount(l.memoryDir(group)) }

func (l legacy) memory(stats map[string]uint64) (inactiveFile, rss uint64) {
	return stats["total_inactive_file"], stats["total_rss"]
}

// kill freezes first, so that a fork bomb cannot outrun it. The signal is acted
// on when the processes thaw.
func (l legacy) kill(group string) error {
	state := filepath.Join(l.main(group), "freezer.state")
	frozen := os.WriteFile(state, []byte("FROZEN"), 0)
	pids, err := l.pids(group)
	for _, pid := range pids {
		err = errors.Join(err, killPid(pid))
	}
	thawed := os.WriteFile(state, []byte("THAWED"), 0)
	return ignoreGone(errors.Join(frozen, err, thawed))
}

// pids looks at all hierarchies: a process that was made while its parent was
// moved from one group to another is in some of them only.
func (l legacy) pids(group string) ([]int, error) {
	seen := map[int]bool{}
	var errs []error
	for _, dir := range l.dirs(group) {
		pids, err := cgroups.GetAllPids(dir)
		errs = append(errs, ignoreGone(err))
		for _, pid := range pids {
			seen[pid] = true
		}
	}
	return slices.Sorted(maps.Keys(seen)), errors.Join(errs...)
}

func (l legacy) missing(string) ([]string, error) {
	return without(slices.Collect(maps.Keys(l.mounts))), nil
}

func (l legacy) hasHugePages() bool { return l.mounts["hugetlb"] != "" }

// unified is cgroup v2 alone.
type unified struct{}

func (unified) String() string { return "v2" }

func (u unified) manager(group string, r *cgroups.Resources) (cgroups.Manager, error) {
	return v2.NewManager(&cgroups.Cgroup{Path: group, Resources: r}, u.main(group))
}

func (u unified) dirs(group string) map[string]string {
	return map[string]string{"unified": u.main(group)}
}

func (unified) main(group string) string { return filepath.Join(v2.UnifiedMountpoint, group) }

func (u unified) memoryDir(group string) string { return u.main(group) }

// oomKills of v2 include the groups below; only the local ones are wanted.
func (u unified) oomKills(group string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(u.main(group), "memory.events.local"))
	if errors.Is(err, fs.ErrNotExist) {
		return v2.OOMKillCount(u.main(group))
	}
	if err != nil {
		return 0, err
	}
	return valueOf(string(b), "oom_kill"), nil
}

func (unified) memory(stats map[string]uint64) (inactiveFile, rss uint64) {
	return stats["inactive_file"], stats["anon"]
}

func (u unified) kill(group string) error {
	err := os.WriteFile(filepath.Join(u.main(group), "cgroup.kill"), []byte("1"), 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return ignoreGone(err)
	}
	// Linux before 5.14, or the group is gone.
	freeze := filepath.Join(u.main(group), "cgroup.freeze")
	frozen := os.WriteFile(freeze, []byte("1"), 0)
	pids, err := cgroups.GetAllPids(u.main(group))
	for _, pid := range pids {
		err = errors.Join(err, killPid(pid))
	}
	thawed := os.WriteFile(freeze, []byte("0"), 0)
	return ignoreGone(errors.Join(frozen, err, thawed))
}

func (u unified) pids(group string) ([]int, error) { return cgroups.GetAllPids(u.main(group)) }

func (u unified) missing(group string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(u.main(group), "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("cannot read which cgroup controllers there are: %w", err)
	}
	return without(strings.Fields(string(b))), nil
}

func (u unified) hasHugePages() bool {
	b, err := os.ReadFile(filepath.Join(v2.UnifiedMountpoint, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(b)), "hugetlb")
}

// without lists what pods' limits need beyond these controllers.
func without(controllers []string) (missing []string) {
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(controllers, c) {
			missing = append(missing, c)
		}
	}
	return missing
}
