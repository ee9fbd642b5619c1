package cri

import (
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// containerReading is all that metrics of a container are made of.
type containerReading struct {
	shim.Stats
	now      time.Time
	record   store.Container
	layer    layerUsage
	measured bool // layer is known
	fs       filesystem
}

type reading = *containerReading

// containerMetrics are those of a container.
func containerMetrics() []metric[reading] {
	var all []metric[reading]
	for _, group := range [][]metric[reading]{
		cpuMetrics(), memoryMetrics(), filesystemMetrics(), deviceMetrics(),
		processMetrics(), pressureMetrics(), specMetrics(),
	} {
		all = append(all, group...)
	}
	return all
}

func one(n uint64) []value { return []value{{number: n}} }

func seconds(d time.Duration) []value { return one(uint64(d / time.Second)) }

func cpuMetrics() []metric[reading] {
	return []metric[reading]{
		{"container_cpu_usage_seconds_total", "CPU time used, in seconds", counter, nil,
			func(r reading) []value { return seconds(r.CPUUsage) }},
		{"container_cpu_user_seconds_total", "CPU time used outside the kernel, in seconds", counter, nil,
			func(r reading) []value { return seconds(r.CPUUser) }},
		{"container_cpu_system_seconds_total", "CPU time used in the kernel, in seconds", counter, nil,
			func(r reading) []value { return seconds(r.CPUSystem) }},
		{"container_cpu_cfs_periods_total", "Periods of the CPU quota that have passed", counter, nil,
			func(r reading) []value { return one(r.CPUPeriods) }},
		{"container_cpu_cfs_throttled_periods_total", "Periods in which the CPU quota was used up", counter, nil,
			func(r reading) []value { return one(r.CPUThrottledPeriods) }},
		{"container_cpu_cfs_throttled_seconds_total", "Time spent waiting for the next period of the CPU quota, in seconds", counter, nil,
			func(r reading) []value { return seconds(r.CPUThrottled) }},
	}
}

func memoryMetrics() []metric[reading] {
	return []metric[reading]{
		{"container_memory_usage_bytes", "Memory in use, with caches", gauge, nil,
			func(r reading) []value { return one(r.MemoryUsageBytes) }},
		{"container_memory_working_set_bytes", "Memory in use, without caches that can be dropped at once", gauge, nil,
			func(r reading) []value { return one(r.MemoryWorkingSetBytes) }},
		{"container_memory_rss", "Anonymous memory in bytes, with huge pages and what is being swapped", gauge, nil,
			func(r reading) []value { return one(r.MemoryRSSBytes) }},
		{"container_memory_cache", "Memory in bytes that caches files", gauge, nil,
			func(r reading) []value { return one(r.MemoryCacheBytes) }},
		{"container_memory_mapped_file", "Memory in bytes that files are mapped to", gauge, nil,
			func(r reading) []value { return one(r.MemoryMappedBytes) }},
		{"container_memory_total_active_file_bytes", "Memory that caches files used of late", gauge, nil,
			func(r reading) []value { return one(r.MemoryActiveFileBytes) }},
		{"container_memory_total_inactive_file_bytes", "Memory that caches files not used of late", gauge, nil,
			func(r reading) []value { return one(r.MemoryInactiveFileBytes) }},
		{"container_memory_kernel_usage", "Memory in bytes that the kernel holds for the container", gauge, nil,
			func(r reading) []value { return one(r.MemoryKernelBytes) }},
		{"container_memory_max_usage_bytes", "Most memory that was ever in use; 0 if the kernel does not tell", gauge, nil,
			func(r reading) []value { return one(r.MemoryPeakBytes) }},
		{"container_memory_swap", "Swap in use, in bytes; 0 if the kernel does not count it", gauge, nil,
			func(r reading) []value { return one(orZero(r.SwapUsageBytes)) }},
		{"container_memory_failcnt", "Times that memory reached its limit", counter, nil,
			func(r reading) []value { return one(r.MemoryLimitHits) }},
		{"container_memory_failures_total", "Page faults, of the container's own cgroup or with those below it", counter,
			[]string{"failure_type", "scope"},
			func(r reading) []value {
				return []value{
					{number: r.OwnPageFaults, labels: []string{"pgfault", "container"}},
					{number: r.OwnMajorPageFaults, labels: []string{"pgmajfault", "container"}},
					{number: r.PageFaults, labels: []string{"pgfault", "hierarchy"}},
					{number: r.MajorPageFaults, labels: []string{"pgmajfault", "hierarchy"}},
				}
			}},
		{"container_oom_events_total", "Processes killed for want of memory", counter, nil,
			func(r reading) []value { return one(r.OOMKills) }},
		{"container_hugetlb_usage_bytes", "Huge pages in use", gauge, []string{"pagesize"},
			func(r reading) []value {
				return hugePages(r, func(u shim.HugePageUsage) uint64 { return u.UsageBytes })
			}},
		{"container_hugetlb_max_usage_bytes", "Most huge pages that were ever in use", gauge, []string{"pagesize"},
			func(r reading) []value {
				return hugePages(r, func(u shim.HugePageUsage) uint64 { return u.PeakBytes })
			}},
	}
}

func hugePages(r reading, read func(shim.HugePageUsage) uint64) (out []value) {
	for _, u := range r.Details.HugePages {
		out = append(out, value{number: read(u), labels: []string{u.Size}})
	}
	return out
}

// filesystemMetrics are of the container's own layer and the file system it is on.
func filesystemMetrics() []metric[reading] {
	of := func(read func(filesystem) uint64) func(reading) []value {
		return func(r reading) []value {
			if r.fs.device == "" {
				return nil
			}
			return []value{{number: read(r.fs), labels: []string{r.fs.device}}}
		}
	}
	device := []string{"device"}
	return []metric[reading]{
		{"container_fs_usage_bytes", "Bytes that the container wrote to its own layer, as measured lately", gauge, device,
			func(r reading) []value {
				if !r.measured {
					return nil
				}
				return []value{{number: r.layer.bytes, labels: []string{r.fs.device}, at: r.layer.at}}
			}},
		{"container_fs_limit_bytes", "Size of the file system that the container's layer is on", gauge, device,
			of(func(fs filesystem) uint64 { return fs.bytes })},
		{"container_fs_inodes_total", "Inodes of the file system that the container's layer is on", gauge, device,
			of(func(fs filesystem) uint64 { return fs.inodes })},
		{"container_fs_inodes_free", "Free inodes of the file system that the container's layer is on", gauge, device,
			of(func(fs filesystem) uint64 { return fs.inodesFree })},
	}
}

// deviceMetrics have no values where the kernel counts nothing: of devices that
// are not disks, and with cgroup v1 of what is written through the cache.
func deviceMetrics() []metric[reading] {
	of := func(read func(shim.DeviceUsage) uint64) func(reading) []value {
		return func(r reading) (out []value) {
			for _, d := range r.Details.Devices {
				out = append(out, value{number: read(d), labels: []string{deviceName(d.Major, d.Minor)}})
			}
			return out
		}
	}
	device := []string{"device"}
	return []metric[reading]{
		{"container_fs_reads_bytes_total", "Bytes read from the device", counter, device,
			of(func(d shim.DeviceUsage) uint64 { return d.ReadBytes })},
		{"container_fs_reads_total", "Reads from the device", counter, device,
			of(func(d shim.DeviceUsage) uint64 { return d.Reads })},
		{"container_fs_writes_bytes_total", "Bytes written to the device", counter, device,
			of(func(d shim.DeviceUsage) uint64 { return d.WriteBytes })},
		{"container_fs_writes_total", "Writes to the device", counter, device,
			of(func(d shim.DeviceUsage) uint64 { return d.Writes })},
		{"container_blkio_device_usage_total", "Bytes read from the device or written to it", counter,
			[]string{"device", "major", "minor", "operation"},
			func(r reading) (out []value) {
				for _, d := range r.Details.Devices {
					name, major, minor := deviceName(d.Major, d.Minor), strconv.FormatUint(d.Major, 10), strconv.FormatUint(d.Minor, 10)
					out = append(out,
						value{number: d.ReadBytes, labels: []string{name, major, minor, "Read"}},
						value{number: d.WriteBytes, labels: []string{name, major, minor, "Write"}})
				}
				return out
			}},
	}
}

func processMetrics() []metric[reading] {
	return []metric[reading]{
		{"container_processes", "Processes", gauge, nil,
			func(r reading) []value { return one(r.Processes) }},
		{"container_threads", "Threads of all processes", gauge, nil,
			func(r reading) []value { return one(r.PIDs) }},
		{"container_threads_max", "Most threads that are allowed; 0 is no limit", gauge, nil,
			func(r reading) []value { return one(r.PIDsLimit) }},
		{"container_file_descriptors", "Open files of all processes", gauge, nil,
			func(r reading) []value { return one(r.Details.Descriptors) }},
		{"container_sockets", "Open sockets of all processes", gauge, nil,
			func(r reading) []value { return one(r.Details.Sockets) }},
		{"container_ulimits_soft", "Soft limits of the first process; without those that have no end", gauge, []string{"ulimit"},
			func(r reading) (out []value) {
				for _, l := range r.Details.SoftLimits {
					out = append(out, value{number: l.Value, labels: []string{ulimitName(l.Name)}})
				}
				return out
			}},
		{"container_start_time_seconds", "When the container started, in seconds since 1970", gauge, nil,
			func(r reading) []value { return one(uint64(r.record.StartedAt.Unix())) }},
		{"container_last_seen", "When the container was last looked at, in seconds since 1970", gauge, nil,
			func(r reading) []value { return one(uint64(r.now.Unix())) }},
	}
}

// ulimitName is cAdvisor's name of "Max open files".
func ulimitName(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), " ", "_")
}

// pressureMetrics have no values where the kernel counts no stalls.
func pressureMetrics() []metric[reading] {
	var all []metric[reading]
	for _, resource := range []struct {
		name, what string
		read       func(reading) *shim.Pressure
	}{
		{"cpu", "a CPU", func(r reading) *shim.Pressure { return r.CPUPressure }},
		{"memory", "memory", func(r reading) *shim.Pressure { return r.MemoryPressure }},
		{"io", "input or output", func(r reading) *shim.Pressure { return r.IOPressure }},
	} {
		of := func(read func(*shim.Pressure) shim.Stall) func(reading) []value {
			return func(r reading) []value {
				p := resource.read(r)
				if p == nil {
					return nil
				}
				return seconds(read(p).Total)
			}
		}
		all = append(all,
			metric[reading]{"container_pressure_" + resource.name + "_waiting_seconds_total",
				"Time in which at least one task waited for " + resource.what + ", in seconds", counter, nil,
				of(func(p *shim.Pressure) shim.Stall { return p.Some })},
			metric[reading]{"container_pressure_" + resource.name + "_stalled_seconds_total",
				"Time in which all tasks waited for " + resource.what + ", in seconds", counter, nil,
				of(func(p *shim.Pressure) shim.Stall { return p.Full })})
	}
	return all
}

// specMetrics are what was asked for.
func specMetrics() []metric[reading] {
	set := func(read func(reading) int64) func(reading) []value {
		return func(r reading) []value {
			if n := read(r); n > 0 {
				return one(uint64(n))
			}
			return nil
		}
	}
	orNone := func(read func(reading) int64) func(reading) []value {
		return func(r reading) []value { return one(uint64(max(0, read(r)))) }
	}
	return []metric[reading]{
		{"container_spec_cpu_period", "Period of the CPU quota in microseconds", gauge, nil,
			set(func(r reading) int64 { return r.record.Resources.P.GetCpuPeriod() })},
		{"container_spec_cpu_quota", "CPU time allowed in each period, in microseconds", gauge, nil,
			set(func(r reading) int64 { return r.record.Resources.P.GetCpuQuota() })},
		{"container_spec_cpu_shares", "Share of the CPU beside other containers", gauge, nil,
			set(func(r reading) int64 { return r.record.Resources.P.GetCpuShares() })},
		{"container_spec_memory_limit_bytes", "Most memory that is allowed; 0 is no limit", gauge, nil,
			orNone(func(r reading) int64 { return r.record.Resources.P.GetMemoryLimitInBytes() })},
		{"container_spec_memory_swap_limit_bytes", "Most memory and swap together that is allowed; 0 is no limit", gauge, nil,
			orNone(func(r reading) int64 { return r.record.Resources.P.GetMemorySwapLimitInBytes() })},
		{"container_spec_memory_reservation_limit_bytes", "Memory that is not taken away while there is other; 0 is none", gauge, nil,
			orNone(func(r reading) int64 {
				n, _ := strconv.ParseInt(r.record.Resources.P.GetUnified()["memory.low"], 10, 64)
				return n
			})},
	}
}

func orZero(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}
