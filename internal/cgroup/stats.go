package cgroup

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
)

// Stats is what a group and those below it used.
type Stats struct {
	CPU             time.Duration // in all, since the group was made
	MemoryBytes     uint64        // in use, with caches
	WorkingSetBytes uint64        // in use, without caches that can be dropped at once
	RSSBytes        uint64        // anonymous memory
	Pids            uint64        // processes and threads now
}

// Stats reads what a group uses. A group that does not exist gives an error that
// is fs.ErrNotExist.
func (t *Tree) Stats(group string) (Stats, error) {
	m, err := t.layout.manager(group, &cgroups.Resources{SkipDevices: true})
	if err != nil {
		return Stats{}, err
	}
	if _, err := os.Stat(t.layout.main(group)); err != nil {
		return Stats{}, fmt.Errorf("cannot read statistics of cgroup %s: %w", group, err)
	}
	s, err := m.Stats(&cgroups.StatsOptions{Controllers: cgroups.CPU | cgroups.Memory | cgroups.Pids})
	if err != nil {
		return Stats{}, fmt.Errorf("cannot read statistics of cgroup %s: %w", group, err)
	}
	inactive, rss := t.layout.memory(s.MemoryStats.Stats)
	usage := s.MemoryStats.Usage.Usage
	return Stats{
		CPU:             time.Duration(s.CpuStats.CpuUsage.TotalUsage),
		MemoryBytes:     usage,
		WorkingSetBytes: usage - min(usage, inactive),
		RSSBytes:        rss,
		Pids:            s.PidsStats.Current,
	}, nil
}

// OOMKills counts the processes that were killed for lack of memory in a group
// and in those below it that still exist. A group that does not exist has none.
func (t *Tree) OOMKills(group string) (uint64, error) {
	if !t.has("memory") {
		return 0, nil
	}
	var total uint64
	top := t.layout.memoryDir(group)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return ignoreGone(err)
		}
		n, err := t.layout.oomKills(filepath.Join(group, strings.TrimPrefix(path, top)))
		total += n
		return ignoreGone(err)
	})
	if err != nil {
		return 0, fmt.Errorf("cannot count processes killed for lack of memory in cgroup %s: %w", group, err)
	}
	return total, nil
}
