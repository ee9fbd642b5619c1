package cri

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/shim"
)

// expectedMetrics is what the CRI's validation suite of 1.37 asks for.
const expectedMetrics = `
container_blkio_device_usage_total container_cpu_cfs_periods_total
container_cpu_cfs_throttled_periods_total container_cpu_cfs_throttled_seconds_total
container_cpu_system_seconds_total container_cpu_usage_seconds_total
container_cpu_user_seconds_total container_file_descriptors
container_fs_inodes_free container_fs_inodes_total container_fs_limit_bytes
container_fs_reads_bytes_total container_fs_reads_total container_fs_usage_bytes
container_fs_writes_bytes_total container_fs_writes_total
container_hugetlb_max_usage_bytes container_hugetlb_usage_bytes
container_last_seen container_memory_cache container_memory_failcnt
container_memory_failures_total container_memory_kernel_usage
container_memory_mapped_file container_memory_max_usage_bytes
container_memory_rss container_memory_swap container_memory_usage_bytes
container_memory_working_set_bytes container_network_receive_bytes_total
container_network_receive_errors_total
container_network_receive_packets_dropped_total
container_network_receive_packets_total container_network_transmit_bytes_total
container_network_transmit_errors_total
container_network_transmit_packets_dropped_total
container_network_transmit_packets_total container_oom_events_total
container_pressure_cpu_stalled_seconds_total
container_pressure_cpu_waiting_seconds_total
container_pressure_io_stalled_seconds_total
container_pressure_io_waiting_seconds_total
container_pressure_memory_stalled_seconds_total
container_pressure_memory_waiting_seconds_total container_processes
container_sockets container_spec_cpu_period container_spec_cpu_quota
container_spec_cpu_shares container_spec_memory_limit_bytes
container_spec_memory_reservation_limit_bytes
container_spec_memory_swap_limit_bytes container_start_time_seconds
container_threads container_threads_max container_ulimits_soft`

func TestMetricsAreDescribed(t *testing.T) {
	var s Service
	list, err := s.ListMetricDescriptors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, d := range list {
		if seen[d.GetName()] {
			t.Errorf("%s is described twice", d.GetName())
		}
		seen[d.GetName()] = true
		if d.GetHelp() == "" || !slices.Equal(d.GetLabelKeys()[:len(metricLabels)], metricLabels) {
			t.Errorf("description %v", d)
		}
	}
	for _, name := range strings.Fields(expectedMetrics) {
		if !seen[name] {
			t.Errorf("%s is not described", name)
		}
	}
}

// Counters are those whose name says so, and those that cAdvisor has as such.
func TestMetricsHaveTheirKinds(t *testing.T) {
	kinds := map[string]runtimeapi.MetricType{"container_memory_failcnt": counter}
	check := func(name string, kind runtimeapi.MetricType) {
		want := kinds[name]
		if _, ok := kinds[name]; !ok {
			want = gauge
			if strings.HasSuffix(name, "_total") && name != "container_fs_inodes_total" {
				want = counter
			}
		}
		if kind != want {
			t.Errorf("%s is a %v", name, kind)
		}
	}
	for _, m := range containerMetrics() {
		check(m.name, m.kind)
	}
	for _, m := range networkMetrics() {
		check(m.name, m.kind)
	}
}

// Each number of a reading comes out where it belongs, in the right unit.
func TestMetricValues(t *testing.T) {
	pressure := func(n time.Duration) *shim.Pressure {
		return &shim.Pressure{Some: shim.Stall{Total: n * time.Second}, Full: shim.Stall{Total: (n + 1) * time.Second}}
	}
	swap := uint64(26)
	r := &containerReading{
		Stats: shim.Stats{
			CPUUsage: 3999 * time.Millisecond, CPUUser: 2 * time.Second, CPUSystem: time.Second,
			CPUPeriods: 4, CPUThrottledPeriods: 5, CPUThrottled: 6 * time.Second,
			MemoryUsageBytes: 10, MemoryWorkingSetBytes: 11, MemoryRSSBytes: 12, MemoryPeakBytes: 13, MemoryCacheBytes: 14,
			MemoryMappedBytes: 15, MemoryActiveFileBytes: 16, MemoryInactiveFileBytes: 17, MemoryKernelBytes: 18, MemoryLimitHits: 19,
			PageFaults: 20, MajorPageFaults: 21, OwnPageFaults: 22, OwnMajorPageFaults: 23, OOMKills: 24, SwapUsageBytes: &swap,
			CPUPressure: pressure(30), MemoryPressure: pressure(32), IOPressure: pressure(34),
			Processes: 40, PIDs: 41, PIDsLimit: 42,
			Details: &shim.Details{
				Descriptors: 43, Sockets: 44,
				SoftLimits: []shim.SoftLimit{{Name: "Max open files", Value: 45}},
				Devices:    []shim.DeviceUsage{{Major: 0, Minor: 7, ReadBytes: 46, WriteBytes: 47, Reads: 48, Writes: 49}},
				HugePages:  []shim.HugePageUsage{{Size: "2MB", UsageBytes: 50, PeakBytes: 51}},
			},
		},
		now: time.Unix(60, 0), layer: layerUsage{at: time.Unix(62, 0), bytes: 63}, measured: true,
		fs: filesystem{device: "/dev/x", bytes: 64, inodes: 65, inodesFree: 66},
	}
	r.record.StartedAt = time.Unix(61, 0)
	r.record.Resources.P = &runtimeapi.LinuxContainerResources{
		CpuPeriod: 70, CpuQuota: 71, CpuShares: 72, MemoryLimitInBytes: 73, MemorySwapLimitInBytes: 74,
		Unified: map[string]string{"memory.low": "75"},
	}
	got := linesOf(readAll(nil, containerMetrics(), r, []string{"base"}))
	got = append(got, linesOf(readAll(nil, networkMetrics(), netInterface{
		name: "eth0", rx: netCounters{bytes: 80, packets: 81, errors: 82, dropped: 83}, tx: netCounters{bytes: 84, packets: 85, errors: 86, dropped: 87},
	}, []string{"base"}))...)
	slices.Sort(got)
	want := strings.Split(strings.TrimSpace(`
container_blkio_device_usage_total{base 0:7 0 7 Read} 46
container_blkio_device_usage_total{base 0:7 0 7 Write} 47
container_cpu_cfs_periods_total{base} 4
container_cpu_cfs_throttled_periods_total{base} 5
container_cpu_cfs_throttled_seconds_total{base} 6
container_cpu_system_seconds_total{base} 1
container_cpu_usage_seconds_total{base} 3
container_cpu_user_seconds_total{base} 2
container_file_descriptors{base} 43
container_fs_inodes_free{base /dev/x} 66
container_fs_inodes_total{base /dev/x} 65
container_fs_limit_bytes{base /dev/x} 64
container_fs_reads_bytes_total{base 0:7} 46
container_fs_reads_total{base 0:7} 48
container_fs_usage_bytes{base /dev/x} 63 at 62
container_fs_writes_bytes_total{base 0:7} 47
container_fs_writes_total{base 0:7} 49
container_hugetlb_max_usage_bytes{base 2MB} 51
container_hugetlb_usage_bytes{base 2MB} 50
container_last_seen{base} 60
container_memory_cache{base} 14
container_memory_failcnt{base} 19
container_memory_failures_total{base pgfault container} 22
container_memory_failures_total{base pgfault hierarchy} 20
container_memory_failures_total{base pgmajfault container} 23
container_memory_failures_total{base pgmajfault hierarchy} 21
container_memory_kernel_usage{base} 18
container_memory_mapped_file{base} 15
container_memory_max_usage_bytes{base} 13
container_memory_rss{base} 12
container_memory_swap{base} 26
container_memory_total_active_file_bytes{base} 16
container_memory_total_inactive_file_bytes{base} 17
container_memory_usage_bytes{base} 10
container_memory_working_set_bytes{base} 11
container_network_receive_bytes_total{base eth0} 80
container_network_receive_errors_total{base eth0} 82
container_network_receive_packets_dropped_total{base eth0} 83
container_network_receive_packets_total{base eth0} 81
container_network_transmit_bytes_total{base eth0} 84
container_network_transmit_errors_total{base eth0} 86
container_network_transmit_packets_dropped_total{base eth0} 87
container_network_transmit_packets_total{base eth0} 85
container_oom_events_total{base} 24
container_pressure_cpu_stalled_seconds_total{base} 31
container_pressure_cpu_waiting_seconds_total{base} 30
container_pressure_io_stalled_seconds_total{base} 35
container_pressure_io_waiting_seconds_total{base} 34
container_pressure_memory_stalled_seconds_total{base} 33
container_pressure_memory_waiting_seconds_total{base} 32
container_processes{base} 40
container_sockets{base} 44
container_spec_cpu_period{base} 70
container_spec_cpu_quota{base} 71
container_spec_cpu_shares{base} 72
container_spec_memory_limit_bytes{base} 73
container_spec_memory_reservation_limit_bytes{base} 75
container_spec_memory_swap_limit_bytes{base} 74
container_start_time_seconds{base} 61
container_threads_max{base} 42
container_threads{base} 41
container_ulimits_soft{base max_open_files} 45`), "\n")
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// linesOf writes metrics like Prometheus, with the labels' values.
func linesOf(metrics []*runtimeapi.Metric) (lines []string) {
	for _, m := range metrics {
		line := fmt.Sprintf("%s{%s} %d", m.GetName(), strings.Join(m.GetLabelValues(), " "), m.GetValue().GetValue())
		if at := m.GetTimestamp(); at != 0 {
			line += fmt.Sprintf(" at %d", time.Unix(0, at).Unix())
		}
		lines = append(lines, line)
	}
	return lines
}

// metricsOf reads the metrics of one sandbox, checks them against their
// descriptions, and gives them by name and last label.
func metricsOf(t *testing.T, s *Service, sandbox string) map[string]uint64 {
	t.Helper()
	described, err := s.ListMetricDescriptors(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]int{}
	for _, d := range described {
		labels[d.GetName()] = len(d.GetLabelKeys())
	}
	list, err := s.ListPodSandboxMetrics(context.Background())
	i := slices.IndexFunc(list, func(p *runtimeapi.PodSandboxMetrics) bool { return p.GetPodSandboxId() == sandbox })
	if err != nil || i < 0 {
		t.Fatalf("no metrics of sandbox %s in %v, %v", sandbox, list, err)
	}
	metrics := slices.Clone(list[i].GetMetrics())
	for _, c := range list[i].GetContainerMetrics() {
		metrics = append(metrics, c.GetMetrics()...)
	}
	out := map[string]uint64{}
	for _, m := range metrics {
		values := m.GetLabelValues()
		if len(values) != labels[m.GetName()] {
			t.Errorf("metric %v does not fit its description", m)
		}
		name := m.GetName()
		if len(values) > len(metricLabels) {
			name += " " + values[len(values)-1]
		}
		out[name] = m.GetValue().GetValue()
	}
	return out
}

func TestMetricsOfRunningContainers(t *testing.T) {
	f := newFixture(t)
	sandbox, id := f.runOne(t)
	m := metricsOf(t, f.Service, sandbox)
	if m["container_cpu_usage_seconds_total"] != 3 || m["container_memory_working_set_bytes"] != 10 {
		t.Errorf("%v", m)
	}
	list, err := f.ListPodSandboxMetrics(t.Context())
	if err != nil || len(list) != 1 || len(list[0].GetContainerMetrics()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	want := []string{"app", "/berth/" + id, testImage, id, "default", "web"}
	if c := list[0].GetContainerMetrics()[0]; c.GetContainerId() != id || !slices.Equal(c.GetMetrics()[0].GetLabelValues(), want) {
		t.Errorf("labels %q", c.GetMetrics()[0].GetLabelValues())
	}
	if err := f.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if list, err := f.ListPodSandboxMetrics(t.Context()); err != nil || len(list) != 1 || len(list[0].GetContainerMetrics()) != 0 {
		t.Errorf("of a stopped container: %v, %v", list, err)
	}
	if err := f.StopPodSandbox(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	if list, err := f.ListPodSandboxMetrics(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("of a stopped sandbox: %v, %v", list, err)
	}
}
