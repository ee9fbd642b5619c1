package shim

import (
	"context"
	"time"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// Stats is a reading of a container's cgroups, or of another cgroup and all
// below it.
type Stats struct {
	At time.Time

	CPUUsage            time.Duration // since the group was made
	CPUUser, CPUSystem  time.Duration // CPUUsage split up, on v1 by sampling
	CPUPeriods          uint64        // of the quota
	CPUThrottledPeriods uint64        // of them, how many hit it
	CPUThrottled        time.Duration

	MemoryUsageBytes uint64
	// MemoryWorkingSetBytes is usage less inactive file pages, the kubelet's
	// measure of what can't be reclaimed.
	MemoryWorkingSetBytes   uint64
	MemoryRSSBytes          uint64
	MemoryLimitBytes        uint64 // 0: none
	MemoryPeakBytes         uint64 // largest usage; 0: the kernel does not tell
	MemoryCacheBytes        uint64
	MemoryMappedBytes       uint64 // files mapped
	MemoryActiveFileBytes   uint64
	MemoryInactiveFileBytes uint64
	MemoryKernelBytes       uint64
	MemoryLimitHits         uint64 // times that usage reached the limit
	PageFaults              uint64
	MajorPageFaults         uint64
	OwnPageFaults           uint64 // without groups below
	OwnMajorPageFaults      uint64
	OOMKills                uint64
	SwapUsageBytes          *uint64 // nil: the kernel does not count it
	SwapLimitBytes          *uint64 // nil: none
	CPUPressure             *Pressure
	MemoryPressure          *Pressure
	IOPressure              *Pressure
	Processes               uint64
	PIDs, PIDsLimit         uint64 // threads; limit 0: none
	LogLinesDropped         uint64 // output lost because the log could not be written
	Details                 *Details
}

// Details are what takes longer to read: a look at every process.
type Details struct {
	Descriptors uint64 // open files of all processes
	Sockets     uint64 // how many of them are sockets
	SoftLimits  []SoftLimit
	Devices     []DeviceUsage
	HugePages   []HugePageUsage
}

// SoftLimit is a resource limit of a container's first process, named as in
// /proc/PID/limits. One without end is not reported.
type SoftLimit struct {
	Name  string
	Value uint64
}

// DeviceUsage is what was read from and written to a block device.
type DeviceUsage struct {
	Major, Minor          uint64
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
}

// HugePageUsage is what is used of the huge pages of one size, such as "2MB".
type HugePageUsage struct {
	Size                  string
	UsageBytes, PeakBytes uint64
}

// Pressure says how long tasks waited for a resource. A nil one is not known:
// the kernel has none, or only cgroup v1.
type Pressure struct {
	Some, Full Stall // at least one task waited; all did
}

// Stall is a time of waiting, and its part of the last 10, 60 and 300 seconds in
// percent.
type Stall struct {
	Total                time.Duration
	Avg10, Avg60, Avg300 float64
}

// Stats reads the container's cgroups.
func (c *Client) Stats(ctx context.Context, id string) (Stats, error) {
	return c.stats(ctx, &shimpb.StatsRequest{Id: id})
}

// DetailedStats reads the container's cgroups and looks at its processes.
func (c *Client) DetailedStats(ctx context.Context, id string) (Stats, error) {
	return c.stats(ctx, &shimpb.StatsRequest{Id: id, Detailed: true})
}

// GroupStats reads the cgroup at a path below each hierarchy, with all below it.
// The error is ErrNotFound if there is none, or the shim is too old to look.
func (c *Client) GroupStats(ctx context.Context, cgroup string) (Stats, error) {
	return c.stats(ctx, &shimpb.StatsRequest{Cgroup: cgroup})
}

func (c *Client) stats(ctx context.Context, q *shimpb.StatsRequest) (Stats, error) {
	r, err := repeat(ctx, c, func(s shimpb.ShimClient) (*shimpb.StatsResponse, error) { return s.Stats(ctx, q) })
	if err != nil {
		return Stats{}, err
	}
	st := Stats{
		At:       timeOf(r.At),
		CPUUsage: time.Duration(r.CpuUsageNs), CPUUser: time.Duration(r.CpuUserNs), CPUSystem: time.Duration(r.CpuSystemNs),
		CPUPeriods: r.CpuPeriods, CPUThrottledPeriods: r.CpuThrottledPeriods, CPUThrottled: time.Duration(r.CpuThrottledNs),
		MemoryUsageBytes: r.MemoryUsageBytes, MemoryWorkingSetBytes: r.MemoryWorkingSetBytes,
		MemoryRSSBytes: r.MemoryRssBytes, MemoryLimitBytes: r.MemoryLimitBytes, MemoryPeakBytes: r.MemoryPeakBytes,
		MemoryCacheBytes: r.MemoryCacheBytes, MemoryMappedBytes: r.MemoryMappedBytes,
		MemoryActiveFileBytes: r.MemoryActiveFileBytes, MemoryInactiveFileBytes: r.MemoryInactiveFileBytes,
		MemoryKernelBytes: r.MemoryKernelBytes, MemoryLimitHits: r.MemoryLimitHits,
		PageFaults: r.PageFaults, MajorPageFaults: r.MajorPageFaults,
		OwnPageFaults: r.OwnPageFaults, OwnMajorPageFaults: r.OwnMajorPageFaults,
		OOMKills: r.OomKills, SwapUsageBytes: r.SwapUsageBytes, SwapLimitBytes: r.SwapLimitBytes,
		CPUPressure: pressure(r.CpuPressure), MemoryPressure: pressure(r.MemoryPressure), IOPressure: pressure(r.IoPressure),
		Processes: r.Processes, PIDs: r.Pids, PIDsLimit: r.PidsLimit, LogLinesDropped: r.LogLinesDropped,
	}
	if q.Detailed {
		st.Details = details(r)
	}
	return st, nil
}

func details(r *shimpb.StatsResponse) *Details {
	d := &Details{Descriptors: r.Descriptors, Sockets: r.Sockets}
	for _, l := range r.SoftLimits {
		d.SoftLimits = append(d.SoftLimits, SoftLimit{Name: l.Name, Value: l.Value})
	}
	for _, u := range r.Devices {
		d.Devices = append(d.Devices, DeviceUsage{
			Major: u.Major, Minor: u.Minor,
			ReadBytes: u.ReadBytes, WriteBytes: u.WriteBytes, Reads: u.Reads, Writes: u.Writes,
		})
	}
	for _, u := range r.HugePages {
		d.HugePages = append(d.HugePages, HugePageUsage{Size: u.Size, UsageBytes: u.UsageBytes, PeakBytes: u.PeakBytes})
	}
	return d
}

func pressure(p *shimpb.Pressure) *Pressure {
	if p == nil {
		return nil
	}
	stall := func(s *shimpb.Stall) Stall {
		return Stall{Total: time.Duration(s.GetTotalNs()), Avg10: s.GetAvg10(), Avg60: s.GetAvg60(), Avg300: s.GetAvg300()}
	}
	return &Pressure{Some: stall(p.Some), Full: stall(p.Full)}
}
