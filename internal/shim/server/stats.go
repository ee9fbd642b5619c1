package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// stats reads the container's cgroups.
func (c *container) stats() (*shimpb.StatsResponse, error) {
	st := c.state()
	m, err := cgroupManager(st.CgroupPaths)
	if err != nil {
		return nil, err
	}
	if st.Phase == exited || !m.Exists() {
		return nil, c.wrongState(st.Phase)
	}
	cs, err := m.GetStats()
	if err != nil {
		return nil, fmt.Errorf("cannot read cgroups of container %q: %w", c.id, err)
	}
	mem := cs.MemoryStats
	r := &shimpb.StatsResponse{
		At:               time.Now().UnixNano(),
		CpuUsageNs:       cs.CpuStats.CpuUsage.TotalUsage,
		MemoryUsageBytes: mem.Usage.Usage,
		Pids:             cs.PidsStats.Current,
		PidsLimit:        cs.PidsStats.Limit,
	}
	// v1 counts the whole hierarchy under total_, v2 only knows that.
	reading := func(v1, v2 string) uint64 {
		if v, ok := mem.Stats[v1]; ok {
			return v
		}
		return mem.Stats[v2]
	}
	r.MemoryRssBytes = reading("total_rss", "anon")
	r.PageFaults = reading("total_pgfault", "pgfault")
	r.MajorPageFaults = reading("total_pgmajfault", "pgmajfault")
	r.MemoryWorkingSetBytes = mem.Usage.Usage - min(mem.Usage.Usage, reading("total_inactive_file", "inactive_file"))
	// "No limit" is a number close to the largest one, rounded to pages on v1.
	if mem.Usage.Limit < math.MaxInt64-1<<20 {
		r.MemoryLimitBytes = mem.Usage.Limit
	}
	if n, err := oomKills(st.CgroupPaths); err == nil {
		r.OomKills = n
	}
	if c.log != nil {
		r.LogLinesDropped = c.log.droppedLines()
	}
	return r, nil
}

// update sets the container's resource limits to those in resources, JSON of
// OCI LinuxResources; what is not in there stays.
func (c *container) update(resources []byte) error {
	defer c.lock()()
	st := c.state()
	if st.Phase != created && st.Phase != running {
		return c.wrongState(st.Phase)
	}
	var r specs.LinuxResources
	if err := json.Unmarshal(resources, &r); err != nil {
		return fmt.Errorf("cannot decode resources: %w", err)
	}
	if len(r.Devices) > 0 {
		return errors.New("cannot update devices of a running container")
	}
	lc, err := c.libcontainer()
	if err != nil {
		return err
	}
	config := lc.Config()
	cg := *config.Cgroups
	res := *cg.Resources
	cg.Resources = &res
	config.Cgroups = &cg
	// specconv turns resources into what libcontainer wants; the rest of the
	// spec does not matter.
	converted, err := specconv.CreateCgroupConfig(&specconv.CreateOpts{
		CgroupName: c.id,
		Spec:       &specs.Spec{Version: specs.Version, Linux: &specs.Linux{Resources: &r, CgroupsPath: cg.Path}},
	}, nil)
	if err != nil {
		return fmt.Errorf("cannot update container %q: %w", c.id, err)
	}
	n := converted.Resources
	if m := r.Memory; m != nil {
		if m.Limit != nil {
			res.Memory = n.Memory
		}
		if m.Reservation != nil {
			res.MemoryReservation = n.MemoryReservation
		}
		if m.Swap != nil {
			res.MemorySwap = n.MemorySwap
		}
	}
	if cpu := r.CPU; cpu != nil {
		if cpu.Shares != nil {
			res.CpuShares, res.CpuWeight = n.CpuShares, n.CpuWeight
		}
		if cpu.Quota != nil {
			res.CpuQuota = n.CpuQuota
		}
		if cpu.Period != nil {
			res.CpuPeriod = n.CpuPeriod
		}
		if cpu.Burst != nil {
			res.CpuBurst = n.CpuBurst
		}
		if cpu.Cpus != "" {
			res.CpusetCpus = n.CpusetCpus
		}
		if cpu.Mems != "" {
			res.CpusetMems = n.CpusetMems
		}
	}
	if r.Pids != nil {
		res.PidsLimit = n.PidsLimit
	}
	if len(r.HugepageLimits) > 0 {
		res.HugetlbLimit = n.HugetlbLimit
	}
	if len(r.Unified) > 0 {
		res.Unified = r.Unified
	}
	// The rules for devices were set at the start and can't change.
	res.SkipDevices = true
	err = lc.Set(config)
	// What is saved is used to start execs, which must set devices.
	res.SkipDevices = false
	if err != nil {
		if errors.Is(err, os.ErrInvalid) || strings.Contains(err.Error(), "device or resource busy") {
			return fmt.Errorf("cannot update container %q, it may use more than the new limit: %w", c.id, err)
		}
		return fmt.Errorf("cannot update container %q: %w", c.id, err)
	}
	return nil
}
