package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const mebibyte = 1 << 20

// between checks a number that other things add a little to.
func between(t *testing.T, what string, got, low, high uint64) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s is %d, want %d to %d", what, got, low, high)
	}
}

// limits sets limits of the kinds that the suite which validates the CRI sets.
func limits(c *runtimeapi.ContainerConfig) {
	c.Linux.Resources = &runtimeapi.LinuxContainerResources{
		CpuPeriod: 100_000, CpuQuota: 200_000, CpuShares: 1024,
		MemoryLimitInBytes: 128 * mebibyte, MemorySwapLimitInBytes: 128 * mebibyte,
	}
}

// hasPressure says whether the kernel counts stalls for cgroups here: without, a
// file of them is not there or can't be read.
func hasPressure() bool {
	for _, dir := range []string{"", "unified"} {
		files, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", dir, "*", "cpu.pressure"))
		for _, file := range files {
			if _, err := os.ReadFile(file); err == nil {
				return true
			}
		}
	}
	return false
}

// What a container takes is what its stats and metrics say.
func TestRealUse(t *testing.T) {
	p := real(t).pod(t)
	id := p.start(limits, "use", "memory=64", "file=/tmp/written:3000000", "sockets=7", "cpu=1500", "send=10.213.0.1:9:200")
	p.awaitLog(id, "used")

	c, err := p.ContainerStats(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	mem := c.GetMemory()
	between(t, "rss", mem.GetRssBytes().GetValue(), 64*mebibyte, 80*mebibyte)
	between(t, "working set", mem.GetWorkingSetBytes().GetValue(), 64*mebibyte, 90*mebibyte)
	between(t, "usage", mem.GetUsageBytes().GetValue(), mem.GetWorkingSetBytes().GetValue(), 128*mebibyte)
	between(t, "available and working set", mem.GetAvailableBytes().GetValue()+mem.GetWorkingSetBytes().GetValue(), 128*mebibyte, 128*mebibyte)
	between(t, "page faults", mem.GetPageFaults().GetValue(), 1, 1_000_000)
	between(t, "cpu", c.GetCpu().GetUsageCoreNanoSeconds().GetValue(), 1500e6, 60e9)
	between(t, "layer", c.GetWritableLayer().GetUsedBytes().GetValue(), 3_000_000, 3_200_000)
	between(t, "layer's inodes", c.GetWritableLayer().GetInodesUsed().GetValue(), 1, 20)
	if c.GetSwap().GetTimestamp() == 0 || c.GetSwap().GetSwapUsageBytes().GetValue() != 0 {
		t.Errorf("swap %v", c.GetSwap())
	}
	if known := c.GetCpu().GetPsi() != nil && c.GetMemory().GetPsi() != nil && c.GetIo().GetPsi() != nil; known != hasPressure() {
		t.Errorf("stalls %v %v %v", c.GetCpu().GetPsi(), c.GetMemory().GetPsi(), c.GetIo().GetPsi())
	}

	m := metricsOf(t, p.Service, p.id)
	for name, want := range map[string][2]uint64{
		"container_cpu_usage_seconds_total":              {1, 60},
		"container_cpu_user_seconds_total":               {0, 60},
		"container_cpu_cfs_periods_total":                {1, 100_000},
		"container_memory_rss":                           {64 * mebibyte, 80 * mebibyte},
		"container_memory_max_usage_bytes":               {64 * mebibyte, 128 * mebibyte},
		"container_memory_kernel_usage":                  {4096, 20 * mebibyte},
		"container_memory_cache":                         {3_000_000, 20 * mebibyte},
		"container_fs_usage_bytes " + filesystemOf(t, p): {3_000_000, 3_200_000},
		"container_processes":                            {1, 1},
		"container_threads":                              {2, 30},
		"container_sockets":                              {7, 7},
		"container_file_descriptors":                     {10, 30},
		"container_ulimits_soft max_open_files":          {openFilesLimit(t, p, id), openFilesLimit(t, p, id)},
		"container_network_transmit_bytes_total eth0":    {200_000, 300_000},
		"container_network_transmit_packets_total eth0":  {200, 300},
		"container_spec_cpu_quota":                       {200_000, 200_000},
		"container_spec_memory_limit_bytes":              {128 * mebibyte, 128 * mebibyte},
		"container_start_time_seconds":                   {uint64(time.Now().Unix()) - 600, uint64(time.Now().Unix())},
	} {
		if _, ok := m[name]; !ok {
			t.Errorf("there is no %s", name)
		}
		between(t, name, m[name], want[0], want[1])
	}
	given := map[string]bool{}
	for name := range m {
		name, _, _ = strings.Cut(name, " ")
		given[name] = true
	}
	for _, name := range strings.Fields(expectedMetrics) {
		// The kernel counts disks, huge pages and stalls, or does not.
		optional := strings.Contains(name, "_blkio_") || strings.Contains(name, "_fs_reads") || strings.Contains(name, "_fs_writes") ||
			strings.Contains(name, "_hugetlb_") || strings.Contains(name, "_pressure_") && !hasPressure()
		if !given[name] && !optional {
			t.Errorf("there is no value of %s", name)
		}
	}

	pod, err := p.PodSandboxStats(t.Context(), p.id)
	if err != nil {
		t.Fatal(err)
	}
	between(t, "what the pod sent", pod.GetLinux().GetNetwork().GetDefaultInterface().GetTxBytes().GetValue(), 200_000, 300_000)
	between(t, "the pod's processes", pod.GetLinux().GetProcess().GetProcessCount().GetValue(), 1, 1)
}

func filesystemOf(t *testing.T, p *pod) string {
	t.Helper()
	fs := inspectFilesystem(p.cfg.ImagesDir)
	if fs.device == "" || fs.bytes == 0 || fs.inodes < fs.inodesFree {
		t.Errorf("file system %+v", fs)
	}
	return fs.device
}

// openFilesLimit is the soft limit of a container's first process.
func openFilesLimit(t *testing.T, p *pod, id string) (n uint64) {
	t.Helper()
	for line := range strings.Lines(p.exec(id, "cat-file", "/proc/1/limits")) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// A container with a tenth of a CPU waits for most of each period.
func TestRealThrottling(t *testing.T) {
	p := real(t).pod(t)
	id := p.start(func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuPeriod: 10_000, CpuQuota: 1000}
	}, "use", "cpu=150")
	p.awaitLog(id, "used")
	m := metricsOf(t, p.Service, p.id)
	throttled := m["container_cpu_cfs_throttled_periods_total"]
	between(t, "throttled periods", throttled, 20, 10_000)
	between(t, "periods", m["container_cpu_cfs_periods_total"], throttled, 10_000)
	if !hasPressure() {
		return
	}
	// The kernel sums up waiting now and then.
	var waited uint64
	for range 300 {
		st, err := p.ContainerStats(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if waited = st.GetCpu().GetPsi().GetSome().GetTotal(); waited > 100e6 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	between(t, "stall", waited, 100e6, 600e9)
}

// The rate is what was used between two looks, and the children count.
func TestRealRateAndProcesses(t *testing.T) {
	p := real(t).pod(t)
	burning, spawning := p.start(nil, "use", "burn=1"), p.start(nil, "spawn", "3")
	p.awaitLog(burning, "used")
	p.awaitLog(spawning, "spawned")
	first, err := p.ContainerStats(t.Context(), burning)
	if err != nil || first.GetCpu().GetUsageNanoCores() != nil {
		t.Fatalf("%v, %v", first, err)
	}
	time.Sleep(rateWindow)
	second, err := p.ContainerStats(t.Context(), burning)
	if err != nil {
		t.Fatal(err)
	}
	used := second.GetCpu().GetUsageCoreNanoSeconds().GetValue() - first.GetCpu().GetUsageCoreNanoSeconds().GetValue()
	passed := time.Duration(second.GetCpu().GetTimestamp() - first.GetCpu().GetTimestamp())
	want := uint64(float64(used) / passed.Seconds())
	between(t, "rate", second.GetCpu().GetUsageNanoCores().GetValue(), want/2+1, 2*want)

	pod, err := p.PodSandboxStats(t.Context(), p.id)
	if err != nil {
		t.Fatal(err)
	}
	between(t, "processes", pod.GetLinux().GetProcess().GetProcessCount().GetValue(), 5, 5)
	if got := metricsOf(t, p.Service, p.id); got["container_processes"] == 0 {
		t.Errorf("%v", got)
	}
}

// A pod with a cgroup of its own is read there: what is used is not forgotten
// with the container that used it.
func TestRealPodCgroup(t *testing.T) {
	r := real(t)
	group := filepath.Join(r.node.Cgroup, "podown")
	t.Cleanup(func() {
		for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			dirs, _ := filepath.Glob(pattern + group)
			for _, dir := range dirs {
				if err := os.Remove(dir); err != nil {
					t.Error(err)
				}
			}
		}
	})
	p := r.pod(t, func(c *runtimeapi.PodSandboxConfig) { c.Linux.CgroupParent = group })
	stays := p.start(limits, "use", "memory=32")
	goes := p.start(nil, "use", "cpu=1000")
	p.awaitLog(stays, "used")
	p.awaitLog(goes, "used")
	if err := p.StopContainer(t.Context(), goes, 30); err != nil {
		t.Fatal(err)
	}
	if err := p.RemoveContainer(t.Context(), goes); err != nil {
		t.Fatal(err)
	}
	list, err := p.ListPodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsFilter{Id: p.id})
	if err != nil || len(list) != 1 || len(list[0].GetLinux().GetContainers()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	pod := list[0].GetLinux()
	between(t, "cpu", pod.GetCpu().GetUsageCoreNanoSeconds().GetValue(), 1000e6, 60e9)
	between(t, "rss", pod.GetMemory().GetRssBytes().GetValue(), 32*mebibyte, 64*mebibyte)
	between(t, "processes", pod.GetProcess().GetProcessCount().GetValue(), 1, 1)
	if pod.GetMemory().GetAvailableBytes() != nil {
		t.Errorf("memory is limited: %v", pod.GetMemory())
	}
	if (pod.GetIo() != nil) != hasPressure() {
		t.Errorf("io %v", pod.GetIo())
	}
}
