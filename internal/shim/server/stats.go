package server

import (
	"fmt"
	"math"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/cgroups/fscommon"
	"github.com/opencontainers/cgroups/manager"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/shimpb"
)

// stats reads the container's cgroups.
func (c *container) stats(detailed bool) (*shimpb.StatsResponse, error) {
	st := c.state()
	m, err := cgroupManager(st.CgroupPaths)
	if err != nil {
		return nil, err
	}
	if st.Phase == exited || !m.Exists() {
		return nil, c.wrongState(st.Phase)
	}
	r, err := readStats(m, st.CgroupPaths, detailed)
	if err != nil {
		return nil, fmt.Errorf("cannot read cgroups of container %q: %w", c.id, err)
	}
	if c.log != nil {
		r.LogLinesDropped = c.log.droppedLines()
	}
	if detailed {
		r.SoftLimits = softLimits(st.PID)
	}
	return r, nil
}

// groupStats reads a cgroup, a path below each hierarchy, with all below it.
func groupStats(path string) (*shimpb.StatsResponse, error) {
	if !cleanAbs(path) || path == "/" {
		return nil, fmt.Errorf("cannot read cgroup %q: want an absolute path below the root", path)
	}
	m, err := manager.New(&cgroups.Cgroup{Path: path, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return nil, fmt.Errorf("cannot read cgroup %q: %w", path, err)
	}
	if !m.Exists() {
		return nil, fmt.Errorf("cgroup %q: %w", path, shim.ErrNotFound)
	}
	r, err := readStats(m, m.GetPaths(), false)
	if err != nil {
		return nil, fmt.Errorf("cannot read cgroup %q: %w", path, err)
	}
	return r, nil
}

func readStats(m cgroups.Manager, paths map[string]string, detailed bool) (*shimpb.StatsResponse, error) {
	memory, unified := memoryPath(paths)
	which := cgroups.CPU | cgroups.Memory | cgroups.Pids
	if detailed {
		which |= cgroups.IO | cgroups.HugeTLB
	}
	if unified {
		which |= cgroups.IO // one small file, and the stalls with it
	}
	cs, err := m.Stats(&cgroups.StatsOptions{Controllers: which})
	if err != nil {
		return nil, err
	}
	pids, err := m.GetAllPids()
	if err != nil {
		return nil, err
	}
	r := &shimpb.StatsResponse{
		At:        time.Now().UnixNano(),
		Pids:      cs.PidsStats.Current,
		PidsLimit: cs.PidsStats.Limit,
		Processes: uint64(len(pids)),
	}
	setCPU(r, cs.CpuStats)
	setMemory(r, cs.MemoryStats)
	if n, err := oomKills(paths); err == nil {
		r.OomKills = n
	}
	if unified {
		// Of v1 the library reads it.
		if n, err := fscommon.GetValueByKey(memory, "memory.events", "max"); err == nil {
			r.MemoryLimitHits = n
		}
		setPressure(r, cs)
	} else if beside := paths[""]; beside != "" {
		// The hybrid form: the unified hierarchy knows stalls and nothing else.
		if cs, err := unifiedStats(beside); err == nil {
			setPressure(r, cs)
		}
	}
	if detailed {
		r.Descriptors, r.Sockets = openFiles(pids)
		r.Devices = deviceUsage(cs.BlkioStats)
		r.HugePages = hugePageUsage(cs.HugetlbStats)
	}
	return r, nil
}

func setCPU(r *shimpb.StatsResponse, cpu cgroups.CpuStats) {
	r.CpuUsageNs = cpu.CpuUsage.TotalUsage
	r.CpuUserNs = cpu.CpuUsage.UsageInUsermode
	r.CpuSystemNs = cpu.CpuUsage.UsageInKernelmode
	r.CpuPeriods = cpu.ThrottlingData.Periods
	r.CpuThrottledPeriods = cpu.ThrottlingData.ThrottledPeriods
	r.CpuThrottledNs = cpu.ThrottlingData.ThrottledTime
}

// noLimit is where numbers begin that mean "no limit": close to the largest one,
// rounded to pages on v1.
const noLimit = math.MaxInt64 - 1<<20

func setMemory(r *shimpb.StatsResponse, mem cgroups.MemoryStats) {
	// v1 counts the whole hierarchy under total_, v2 only knows that.
	_, v1 := mem.Stats["total_rss"]
	reading := func(onV1, onV2 string) uint64 {
		if v1 {
			return mem.Stats[onV1]
		}
		return mem.Stats[onV2]
	}
	r.MemoryUsageBytes = mem.Usage.Usage
	r.MemoryPeakBytes = mem.Usage.MaxUsage
	r.MemoryLimitHits = mem.Usage.Failcnt
	r.MemoryRssBytes = reading("total_rss", "anon")
	r.MemoryCacheBytes = reading("total_cache", "file")
	r.MemoryMappedBytes = reading("total_mapped_file", "file_mapped")
	r.MemoryActiveFileBytes = reading("total_active_file", "active_file")
	r.MemoryInactiveFileBytes = reading("total_inactive_file", "inactive_file")
	r.PageFaults = reading("total_pgfault", "pgfault")
	r.MajorPageFaults = reading("total_pgmajfault", "pgmajfault")
	r.OwnPageFaults = mem.Stats["pgfault"]
	r.OwnMajorPageFaults = mem.Stats["pgmajfault"]
	r.MemoryWorkingSetBytes = r.MemoryUsageBytes - min(r.MemoryUsageBytes, r.MemoryInactiveFileBytes)
	if mem.Usage.Limit < noLimit {
		r.MemoryLimitBytes = mem.Usage.Limit
	}
	r.MemoryKernelBytes = kernelMemory(mem)
	if v1 {
		setSwapV1(r, mem)
	} else {
		setSwapV2(r, mem)
	}
}

// kernelMemory is what the kernel holds for the group. v2 has a sum of it since
// Linux 5.18.
func kernelMemory(mem cgroups.MemoryStats) uint64 {
	if mem.KernelUsage.Usage > 0 {
		return mem.KernelUsage.Usage
	}
	if all, ok := mem.Stats["kernel"]; ok {
		return all
	}
	var sum uint64
	for _, part := range []string{"kernel_stack", "pagetables", "percpu", "slab"} {
		sum += mem.Stats[part]
	}
	return sum
}

// setSwapV1 knows memory and swap together, and what of it is swap.
func setSwapV1(r *shimpb.StatsResponse, mem cgroups.MemoryStats) {
	used, counted := mem.Stats["total_swap"]
	if !counted {
		return
	}
	r.SwapUsageBytes = &used
	if both := mem.SwapUsage.Limit; both < noLimit && r.MemoryLimitBytes > 0 {
		limit := both - min(both, r.MemoryLimitBytes)
		r.SwapLimitBytes = &limit
	}
}

// setSwapV2 can't tell a kernel that does not count swap from a group without
// any: its numbers are 0 in both cases, which is no swap either way.
func setSwapV2(r *shimpb.StatsResponse, mem cgroups.MemoryStats) {
	r.SwapUsageBytes = &mem.SwapOnlyUsage.Usage
	if mem.SwapOnlyUsage.Limit < noLimit {
		r.SwapLimitBytes = &mem.SwapOnlyUsage.Limit
	}
}

func unifiedStats(path string) (*cgroups.Stats, error) {
	m, err := fs2.NewManager(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, path)
	if err != nil {
		return nil, err
	}
	return m.Stats(&cgroups.StatsOptions{Controllers: cgroups.CPU | cgroups.Memory | cgroups.IO})
}

func setPressure(r *shimpb.StatsResponse, cs *cgroups.Stats) {
	r.CpuPressure = pressure(cs.CpuStats.PSI)
	r.MemoryPressure = pressure(cs.MemoryStats.PSI)
	r.IoPressure = pressure(cs.BlkioStats.PSI)
}

func pressure(p *cgroups.PSIStats) *shimpb.Pressure {
	if p == nil {
		return nil
	}
	stall := func(d cgroups.PSIData) *shimpb.Stall {
		const ns = 1000 // the kernel counts microseconds
		return &shimpb.Stall{TotalNs: d.Total * ns, Avg10: d.Avg10, Avg60: d.Avg60, Avg300: d.Avg300}
	}
	return &shimpb.Pressure{Some: stall(p.Some), Full: stall(p.Full)}
}
