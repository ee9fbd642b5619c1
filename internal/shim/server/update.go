package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
)

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
	if err := c.driver.update(&r); err != nil {
		return fmt.Errorf("cannot update container %q: %w", c.id, err)
	}
	return nil
}

func (b *builtin) update(r *specs.LinuxResources) error {
	lc, err := b.container()
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
		CgroupName: b.c.id,
		Spec:       &specs.Spec{Version: specs.Version, Linux: &specs.Linux{Resources: r, CgroupsPath: cg.Path}},
	}, nil)
	if err != nil {
		return err
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
	if err != nil && (errors.Is(err, os.ErrInvalid) || strings.Contains(err.Error(), "device or resource busy")) {
		return fmt.Errorf("it may use more than the new limit: %w", err)
	}
	return err
}
