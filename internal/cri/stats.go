package cri

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// podInterface is the name of a pod's network interface.
const podInterface = "eth0"

// ContainerStats reads what a container uses. Of one that doesn't run only the
// file system is reported.
func (s *Service) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, err
	}
	return s.containerStats(ctx, c)
}

// ListContainerStats reads what running containers use.
func (s *Service) ListContainerStats(ctx context.Context, f *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	var out []*runtimeapi.ContainerStats
	for _, c := range s.allContainers() {
		if c.state() != store.ContainerRunning ||
			!strings.HasPrefix(c.id, f.GetId()) ||
			!strings.HasPrefix(c.sandboxID, f.GetPodSandboxId()) ||
			!labelsMatch(f.GetLabelSelector(), c.config.GetLabels()) {
			continue
		}
		st, err := s.containerStats(ctx, c)
		if err != nil {
			s.log.Debug("cannot read a container's use", "id", c.id, "err", err) // it may just have ended
			continue
		}
		out = append(out, st)
	}
	return out, ctx.Err()
}

func (s *Service) containerStats(ctx context.Context, c *container) (*runtimeapi.ContainerStats, error) {
	out := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id:          c.id,
		Metadata:    c.config.GetMetadata(),
		Labels:      c.config.GetLabels(),
		Annotations: c.config.GetAnnotations(),
	}}
	if bytes, inodes, err := s.cfg.Images.SnapshotUsage(ctx, c.id); err == nil {
		out.WritableLayer = &runtimeapi.FilesystemUsage{
			Timestamp:  nowNanos(),
			FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: s.cfg.ImagesDir},
			UsedBytes:  uint64Value(uint64(bytes)),
			InodesUsed: uint64Value(uint64(inodes)),
		}
	}
	if c.state() != store.ContainerRunning {
		return out, nil
	}
	st, err := s.cfg.Shim.Stats(ctx, c.id)
	if err != nil {
		return nil, fmt.Errorf("cannot read what container %s uses: %w", c.id, err)
	}
	out.Cpu, out.Memory = cpuUsage(st), memoryUsage(st)
	return out, nil
}

func cpuUsage(st shim.Stats) *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{Timestamp: st.At.UnixNano(), UsageCoreNanoSeconds: uint64Value(uint64(st.CPUUsage))}
}

func memoryUsage(st shim.Stats) *runtimeapi.MemoryUsage {
	m := &runtimeapi.MemoryUsage{
		Timestamp:       st.At.UnixNano(),
		WorkingSetBytes: uint64Value(st.MemoryWorkingSetBytes),
		UsageBytes:      uint64Value(st.MemoryUsageBytes),
		RssBytes:        uint64Value(st.MemoryRSSBytes),
		PageFaults:      uint64Value(st.PageFaults),
		MajorPageFaults: uint64Value(st.MajorPageFaults),
	}
	if st.MemoryLimitBytes > st.MemoryWorkingSetBytes {
		m.AvailableBytes = uint64Value(st.MemoryLimitBytes - st.MemoryWorkingSetBytes)
	}
	return m
}

// PodSandboxStats reads what a sandbox uses: the sum of its running containers
// and its network.
func (s *Service) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	sb, err := s.sandbox(id)
	if err != nil {
		return nil, err
	}
	return s.sandboxStats(ctx, sb)
}

// ListPodSandboxStats reads what ready sandboxes use.
func (s *Service) ListPodSandboxStats(ctx context.Context, f *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	var out []*runtimeapi.PodSandboxStats
	for _, sb := range s.allSandboxes() {
		if sb.state() != store.SandboxReady ||
			!strings.HasPrefix(sb.id, f.GetId()) ||
			!labelsMatch(f.GetLabelSelector(), sb.config.GetLabels()) {
			continue
		}
		st, err := s.sandboxStats(ctx, sb)
		if err != nil {
			s.log.Debug("cannot read a sandbox's use", "id", sb.id, "err", err)
			continue
		}
		out = append(out, st)
	}
	return out, ctx.Err()
}

func (s *Service) sandboxStats(ctx context.Context, sb *sandbox) (*runtimeapi.PodSandboxStats, error) {
	containers, err := s.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{PodSandboxId: sb.id})
	if err != nil {
		return nil, err
	}
	linux := &runtimeapi.LinuxPodSandboxStats{
		Containers: containers,
		Cpu:        &runtimeapi.CpuUsage{Timestamp: nowNanos()},
		Memory:     &runtimeapi.MemoryUsage{Timestamp: nowNanos()},
	}
	var cpu, working, usage, rss uint64
	for _, c := range containers {
		cpu += c.GetCpu().GetUsageCoreNanoSeconds().GetValue()
		working += c.GetMemory().GetWorkingSetBytes().GetValue()
		usage += c.GetMemory().GetUsageBytes().GetValue()
		rss += c.GetMemory().GetRssBytes().GetValue()
	}
	linux.Cpu.UsageCoreNanoSeconds = uint64Value(cpu)
	linux.Memory.WorkingSetBytes = uint64Value(working)
	linux.Memory.UsageBytes = uint64Value(usage)
	linux.Memory.RssBytes = uint64Value(rss)
	if !sb.hostNetwork() && sb.state() == store.SandboxReady {
		if linux.Network, err = s.networkUsage(sb); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id:          sb.id,
			Metadata:    sb.config.GetMetadata(),
			Labels:      sb.config.GetLabels(),
			Annotations: sb.config.GetAnnotations(),
		},
		Linux: linux,
	}, nil
}

// networkUsage reads the counters of the sandbox's interfaces.
func (s *Service) networkUsage(sb *sandbox) (*runtimeapi.NetworkUsage, error) {
	var raw []byte
	err := inNamespaces(s.namespaceDir(sb.id), []nsKind{nsNet}, func() (err error) {
		raw, err = os.ReadFile("/proc/thread-self/net/dev")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the network use of sandbox %s: %w", sb.id, err)
	}
	u := &runtimeapi.NetworkUsage{Timestamp: nowNanos()}
	for _, i := range parseNetDev(string(raw)) {
		switch i.GetName() {
		case "lo":
		case podInterface:
			u.DefaultInterface = i
		default:
			u.Interfaces = append(u.Interfaces, i)
		}
	}
	return u, nil
}

// parseNetDev reads /proc/net/dev. Lines it doesn't understand are left out.
func parseNetDev(text string) []*runtimeapi.NetworkInterfaceUsage {
	var out []*runtimeapi.NetworkInterfaceUsage
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, counters, ok := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(counters)
		if !ok || len(fields) < 11 {
			continue
		}
		number := func(i int) *runtimeapi.UInt64Value {
			n, err := strconv.ParseUint(fields[i], 10, 64)
			if err != nil {
				return nil
			}
			return uint64Value(n)
		}
		out = append(out, &runtimeapi.NetworkInterfaceUsage{
			Name:    strings.TrimSpace(name),
			RxBytes: number(0), RxErrors: number(2),
			TxBytes: number(8), TxErrors: number(10),
		})
	}
	return out
}

func uint64Value(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

func nowNanos() int64 { return time.Now().UnixNano() }
