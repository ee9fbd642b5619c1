package ocispec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pidsMax is the one unified key that works on cgroup v1 too.
const pidsMax = "pids.max"

func setResources(s *specs.Spec, in Input) error {
	r, err := Resources(in.Config.GetLinux().GetResources(), in.Host)
	if err != nil {
		return err
	}
	r.Devices = s.Linux.Resources.Devices
	s.Linux.Resources = r
	return nil
}

// Resources translates limits. Zero values mean "not specified", as in the
// CRI; nil gives an empty result.
func Resources(r *runtimeapi.LinuxContainerResources, host Host) (*specs.LinuxResources, error) {
	out := &specs.LinuxResources{}
	if r == nil {
		return out, nil
	}
	out.CPU = &specs.LinuxCPU{
		Shares: nonZero(uint64(max(r.GetCpuShares(), 0))),
		Quota:  nonZero(r.GetCpuQuota()),
		Period: nonZero(uint64(max(r.GetCpuPeriod(), 0))),
		Cpus:   r.GetCpusetCpus(),
		Mems:   r.GetCpusetMems(),
	}
	out.Memory = &specs.LinuxMemory{Limit: nonZero(r.GetMemoryLimitInBytes())}
	if host.SwapLimit {
		// Without a word about swap a container gets none beyond its memory.
		out.Memory.Swap = nonZero(r.GetMemorySwapLimitInBytes())
		if out.Memory.Swap == nil {
			out.Memory.Swap = nonZero(r.GetMemoryLimitInBytes())
		}
	}
	if host.Hugetlb {
		for _, l := range r.GetHugepageLimits() {
			out.HugepageLimits = append(out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: l.GetPageSize(), Limit: l.GetLimit()})
		}
	} else if slices.ContainsFunc(r.GetHugepageLimits(), func(l *runtimeapi.HugepageLimit) bool { return l.GetLimit() > 0 }) {
		// The kubelet sends limits of 0 for every page size: those need no controller.
		return nil, fmt.Errorf("cannot limit huge pages: the hugetlb cgroup controller is missing")
	}
	return out, setUnified(out, r.GetUnified(), host)
}

func setUnified(out *specs.LinuxResources, unified map[string]string, host Host) error {
	if len(unified) == 0 {
		return nil
	}
	if host.Unified {
		out.Unified = maps.Clone(unified)
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(unified)) {
		if key != pidsMax {
			return fmt.Errorf("cannot set %s: this machine has no unified cgroup (v2) tree", key)
		}
		limit, err := strconv.ParseInt(unified[key], 10, 64)
		if unified[key] == "max" {
			limit, err = -1, nil
		}
		if err != nil {
			return fmt.Errorf("cannot set %s: %w", key, err)
		}
		out.Pids = &specs.LinuxPids{Limit: &limit}
	}
	return nil
}

func nonZero[T int64 | uint64](v T) *T {
	if v == 0 {
		return nil
	}
	return &v
}

// setDevices adds nodes and the cgroup rules for them. A privileged container
// may use every device.
func setDevices(s *specs.Spec, in Input) error {
	if s.Linux.Resources == nil {
		s.Linux.Resources = &specs.LinuxResources{}
	}
	for _, d := range in.Devices {
		s.Linux.Devices = append(s.Linux.Devices, d.Node)
		if d.Access == "" {
			continue
		}
		major, minor := d.Node.Major, d.Node.Minor
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices, specs.LinuxDeviceCgroup{
			Allow: true, Type: d.Node.Type, Major: &major, Minor: &minor, Access: d.Access,
		})
	}
	if in.securityContext().GetPrivileged() {
		if !in.Sandbox.GetLinux().GetSecurityContext().GetPrivileged() {
			return fmt.Errorf("cannot make container %q privileged: its sandbox is not", in.Config.GetMetadata().GetName())
		}
		s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
	}
	return nil
}
