package cri

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

// metric is one of the metrics, with cAdvisor's name and unit, so that dashboards
// work. All values are whole numbers, as the CRI wants them: of a time in
// seconds, the begun second is left out.
type metric[T any] struct {
	name, help string
	kind       runtimeapi.MetricType
	labels     []string // beside metricLabels
	// read gives the values; none if they are not known.
	read func(T) []value
}

// value is one value of a metric.
type value struct {
	number uint64
	labels []string  // of metric.labels
	at     time.Time // zero: now
}

// metricLabels are the labels of every metric, in the order of their values.
// id is the path of the cgroup, as with cAdvisor.
var metricLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

const (
	counter = runtimeapi.MetricType_COUNTER
	gauge   = runtimeapi.MetricType_GAUGE
)

// ListMetricDescriptors names what ListPodSandboxMetrics gives.
func (s *Service) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return append(describe(containerMetrics()), describe(networkMetrics())...), nil
}

func describe[T any](metrics []metric[T]) (out []*runtimeapi.MetricDescriptor) {
	for _, m := range metrics {
		out = append(out, &runtimeapi.MetricDescriptor{
			Name: m.name, Help: m.help, LabelKeys: append(append([]string(nil), metricLabels...), m.labels...),
		})
	}
	return out
}

// ListPodSandboxMetrics reads the metrics of ready sandboxes and their running
// containers.
func (s *Service) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	all := s.podCgroups()
	containers := s.containersBySandbox()
	fs := inspectFilesystem(s.cfg.ImagesDir)
	of, perContainer := networkMetrics(), containerMetrics()
	var out []*runtimeapi.PodSandboxMetrics
	for _, sb := range s.readySandboxes(func(*sandbox) bool { return true }) {
		pod := &runtimeapi.PodSandboxMetrics{PodSandboxId: sb.id}
		labels := []string{"", all.parent(sb), "", "", sb.config.GetMetadata().GetNamespace(), sb.config.GetMetadata().GetName()}
		interfaces, err := s.interfaces(sb)
		if err != nil {
			s.log.Debug("cannot read a sandbox's metrics", "id", sb.id, "err", err) // it may just have ended
			continue
		}
		for _, i := range interfaces {
			pod.Metrics = readAll(pod.Metrics, of, i, labels)
		}
		for _, c := range containers[sb.id] {
			r, err := s.readMetrics(ctx, c, fs)
			if err != nil {
				s.log.Debug("cannot read a container's metrics", "id", c.id, "err", err)
				continue
			}
			labels := []string{c.config.GetMetadata().GetName(), path.Join(all.parent(sb), c.id), r.record.Image, c.id, labels[4], labels[5]}
			pod.ContainerMetrics = append(pod.ContainerMetrics, &runtimeapi.ContainerMetrics{
				ContainerId: c.id, Metrics: readAll(nil, perContainer, r, labels),
			})
		}
		out = append(out, pod)
	}
	return out, ctx.Err()
}

// readAll appends what metrics say of one thing, whose labels are given.
func readAll[T any](out []*runtimeapi.Metric, metrics []metric[T], of T, labels []string) []*runtimeapi.Metric {
	for _, m := range metrics {
		for _, v := range m.read(of) {
			line := &runtimeapi.Metric{Name: m.name, MetricType: m.kind, LabelValues: labels, Value: uint64Value(v.number)}
			if len(v.labels) > 0 {
				line.LabelValues = append(append([]string(nil), labels...), v.labels...)
			}
			if !v.at.IsZero() {
				line.Timestamp = v.at.UnixNano()
			}
			out = append(out, line)
		}
	}
	return out
}

// readMetrics reads a container that runs.
func (s *Service) readMetrics(ctx context.Context, c *container, fs filesystem) (r *containerReading, err error) {
	r = &containerReading{now: time.Now(), record: c.record(), fs: fs}
	if r.record.State != store.ContainerRunning {
		return r, notRunning(c.id, r.record.State)
	}
	if r.Stats, err = s.cfg.Shim.DetailedStats(ctx, c.id); err != nil {
		return r, err
	}
	r.layer, r.measured = s.writableLayer(ctx, c)
	return r, nil
}

// filesystem is the one that containers write their layers to. The zero value is
// one that nothing is known of.
type filesystem struct {
	device                    string
	bytes, inodes, inodesFree uint64
}

func inspectFilesystem(dir string) (fs filesystem) {
	var st unix.Stat_t
	var statfs unix.Statfs_t
	if unix.Stat(dir, &st) != nil || unix.Statfs(dir, &statfs) != nil {
		return fs
	}
	return filesystem{
		device: deviceName(uint64(unix.Major(st.Dev)), uint64(unix.Minor(st.Dev))),
		bytes:  statfs.Blocks * uint64(statfs.Bsize),
		inodes: statfs.Files, inodesFree: statfs.Ffree,
	}
}

// deviceName is the path of a block device, or its numbers if it has none.
func deviceName(major, minor uint64) string {
	numbers := fmt.Sprintf("%d:%d", major, minor)
	if target, err := os.Readlink("/sys/dev/block/" + numbers); err == nil {
		return "/dev/" + filepath.Base(target)
	}
	return numbers
}

// networkMetrics are those of a pod's interface.
func networkMetrics() []metric[netInterface] {
	one := func(name, help string, read func(netInterface) uint64) metric[netInterface] {
		return metric[netInterface]{name, help, counter, []string{"interface"}, func(i netInterface) []value {
			return []value{{number: read(i), labels: []string{i.name}}}
		}}
	}
	return []metric[netInterface]{
		one("container_network_receive_bytes_total", "Bytes received",
			func(i netInterface) uint64 { return i.rx.bytes }),
		one("container_network_receive_errors_total", "Errors while receiving",
			func(i netInterface) uint64 { return i.rx.errors }),
		one("container_network_receive_packets_dropped_total", "Packets dropped while receiving",
			func(i netInterface) uint64 { return i.rx.dropped }),
		one("container_network_receive_packets_total", "Packets received",
			func(i netInterface) uint64 { return i.rx.packets }),
		one("container_network_transmit_bytes_total", "Bytes sent",
			func(i netInterface) uint64 { return i.tx.bytes }),
		one("container_network_transmit_errors_total", "Errors while sending",
			func(i netInterface) uint64 { return i.tx.errors }),
		one("container_network_transmit_packets_dropped_total", "Packets dropped while sending",
			func(i netInterface) uint64 { return i.tx.dropped }),
		one("container_network_transmit_packets_total", "Packets sent",
			func(i netInterface) uint64 { return i.tx.packets }),
	}
}
