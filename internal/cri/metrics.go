package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

// metric is one of the cAdvisor metrics that this runtime gives for containers.
type metric struct {
	name, help string
	kind       runtimeapi.MetricType
	read       func(*runtimeapi.ContainerStats) *runtimeapi.UInt64Value
}

// metricLabels are the labels of every metric, in the order of their values.
var metricLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

// containerMetrics keep cAdvisor's names and units, so that dashboards work;
// all are whole numbers, as the CRI wants them.
func containerMetrics() []metric {
	return []metric{
		{"container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", runtimeapi.MetricType_GAUGE,
			func(s *runtimeapi.ContainerStats) *runtimeapi.UInt64Value { return s.GetMemory().GetUsageBytes() }},
		{"container_memory_working_set_bytes", "Current working set in bytes", runtimeapi.MetricType_GAUGE,
			func(s *runtimeapi.ContainerStats) *runtimeapi.UInt64Value { return s.GetMemory().GetWorkingSetBytes() }},
		{"container_memory_rss", "Size of RSS in bytes", runtimeapi.MetricType_GAUGE,
			func(s *runtimeapi.ContainerStats) *runtimeapi.UInt64Value { return s.GetMemory().GetRssBytes() }},
		{"container_fs_usage_bytes", "Number of bytes that are consumed by the container on its writable layer", runtimeapi.MetricType_GAUGE,
			func(s *runtimeapi.ContainerStats) *runtimeapi.UInt64Value { return s.GetWritableLayer().GetUsedBytes() }},
		{"container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds", runtimeapi.MetricType_COUNTER,
			func(s *runtimeapi.ContainerStats) *runtimeapi.UInt64Value {
				return uint64Value(s.GetCpu().GetUsageCoreNanoSeconds().GetValue() / 1e9)
			}},
	}
}

// ListMetricDescriptors names what ListPodSandboxMetrics gives.
func (s *Service) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	var out []*runtimeapi.MetricDescriptor
	for _, m := range containerMetrics() {
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: metricLabels})
	}
	return out, nil
}

// ListPodSandboxMetrics reads the metrics of the containers of ready sandboxes.
func (s *Service) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	var out []*runtimeapi.PodSandboxMetrics
	for _, sb := range s.allSandboxes() {
		if sb.state() != store.SandboxReady {
			continue
		}
		pod := &runtimeapi.PodSandboxMetrics{PodSandboxId: sb.id}
		for _, c := range s.containersOf(sb.id) {
			if c.state() != store.ContainerRunning {
				continue
			}
			st, err := s.containerStats(ctx, c)
			if err != nil {
				continue // it may just have ended
			}
			pod.ContainerMetrics = append(pod.ContainerMetrics, metricsOf(sb, c, st))
		}
		out = append(out, pod)
	}
	return out, ctx.Err()
}

func metricsOf(sb *sandbox, c *container, st *runtimeapi.ContainerStats) *runtimeapi.ContainerMetrics {
	pod := sb.config.GetMetadata()
	values := []string{c.config.GetMetadata().GetName(), c.id, c.record().Image, c.id, pod.GetNamespace(), pod.GetName()}
	out := &runtimeapi.ContainerMetrics{ContainerId: c.id}
	for _, m := range containerMetrics() {
		v := m.read(st)
		if v == nil {
			continue
		}
		out.Metrics = append(out.Metrics, &runtimeapi.Metric{
			Name: m.name, MetricType: m.kind, LabelValues: values, Value: v,
			Timestamp: st.GetCpu().GetTimestamp(),
		})
	}
	return out
}
