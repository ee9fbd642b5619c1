package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// ContainerStats reads what a container uses. Of one that doesn't run only the
// file system is reported.
func (s *Service) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, err
	}
	u, err := s.containerUsage(ctx, c)
	return u.stats, err
}

// ListContainerStats reads what running containers use.
func (s *Service) ListContainerStats(ctx context.Context, f *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	list := s.containersWhere(func(c *container) bool {
		return strings.HasPrefix(c.id, f.GetId()) &&
			strings.HasPrefix(c.sandboxID, f.GetPodSandboxId()) &&
			labelsMatch(f.GetLabelSelector(), c.config.GetLabels())
	})
	var out []*runtimeapi.ContainerStats
	for _, u := range s.runningUsage(ctx, list) {
		out = append(out, u.stats)
	}
	return out, ctx.Err()
}

// containerUsage is a reading of a container, for the CRI and as the shim gave it.
type containerUsage struct {
	stats *runtimeapi.ContainerStats
	read  shim.Stats // zero of one that doesn't run
}

// runningUsage reads those of containers that run.
func (s *Service) runningUsage(ctx context.Context, containers []*container) (out []containerUsage) {
	for _, c := range containers {
		if c.state() != store.ContainerRunning || ctx.Err() != nil {
			continue
		}
		u, err := s.containerUsage(ctx, c)
		if err != nil {
			s.log.Debug("cannot read a container's use", "id", c.id, "err", err) // it may just have ended
			continue
		}
		out = append(out, u)
	}
	return out
}

func (s *Service) containerUsage(ctx context.Context, c *container) (u containerUsage, err error) {
	out := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id:          c.id,
		Metadata:    c.config.GetMetadata(),
		Labels:      c.config.GetLabels(),
		Annotations: c.config.GetAnnotations(),
	}}
	if l, ok := s.writableLayer(ctx, c); ok {
		out.WritableLayer = &runtimeapi.FilesystemUsage{
			Timestamp:  l.at.UnixNano(),
			FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: s.cfg.ImagesDir},
			UsedBytes:  uint64Value(l.bytes),
			InodesUsed: uint64Value(l.inodes),
		}
	}
	if c.state() != store.ContainerRunning {
		return containerUsage{stats: out}, nil
	}
	st, err := s.cfg.Shim.Stats(ctx, c.id)
	if err != nil {
		return u, fmt.Errorf("cannot read what container %s uses: %w", c.id, err)
	}
	out.Cpu = cpuUsage(st, c.cpu.read(time.Now(), st.CPUUsage))
	out.Memory = memoryUsage(st)
	out.Swap = swapUsage(st)
	out.Io = ioUsage(st)
	return containerUsage{stats: out, read: st}, nil
}

// writableLayer is how much a container wrote to its own layer, as known lately.
func (s *Service) writableLayer(ctx context.Context, c *container) (layerUsage, bool) {
	return c.layer.read(ctx, s.background.Go, func(ctx context.Context) (bytes, inodes int64, err error) {
		if bytes, inodes, err = s.cfg.Images.SnapshotUsage(ctx, c.id); err != nil {
			s.log.Debug("cannot measure a container's layer", "id", c.id, "err", err) // it may just be going
		}
		return bytes, inodes, err
	})
}

func cpuUsage(st shim.Stats, nanoCores *uint64) *runtimeapi.CpuUsage {
	u := &runtimeapi.CpuUsage{
		Timestamp:            st.At.UnixNano(),
		UsageCoreNanoSeconds: uint64Value(uint64(st.CPUUsage)),
		Psi:                  psiStats(st.CPUPressure),
	}
	if nanoCores != nil {
		u.UsageNanoCores = uint64Value(*nanoCores)
	}
	return u
}

func memoryUsage(st shim.Stats) *runtimeapi.MemoryUsage {
	m := &runtimeapi.MemoryUsage{
		Timestamp:       st.At.UnixNano(),
		WorkingSetBytes: uint64Value(st.MemoryWorkingSetBytes),
		UsageBytes:      uint64Value(st.MemoryUsageBytes),
		RssBytes:        uint64Value(st.MemoryRSSBytes),
		PageFaults:      uint64Value(st.PageFaults),
		MajorPageFaults: uint64Value(st.MajorPageFaults),
		Psi:             psiStats(st.MemoryPressure),
	}
	if st.MemoryLimitBytes > 0 {
		m.AvailableBytes = uint64Value(st.MemoryLimitBytes - min(st.MemoryLimitBytes, st.MemoryWorkingSetBytes))
	}
	return m
}

// swapUsage is nil where the kernel does not count swap. Without a limit nothing
// is said of what is available.
func swapUsage(st shim.Stats) *runtimeapi.SwapUsage {
	if st.SwapUsageBytes == nil {
		return nil
	}
	u := &runtimeapi.SwapUsage{Timestamp: st.At.UnixNano(), SwapUsageBytes: uint64Value(*st.SwapUsageBytes)}
	if limit := st.SwapLimitBytes; limit != nil {
		u.SwapAvailableBytes = uint64Value(*limit - min(*limit, *st.SwapUsageBytes))
	}
	return u
}

// ioUsage is nil where the kernel does not tell: the CRI has nothing of input and
// output but the waiting for it.
func ioUsage(st shim.Stats) *runtimeapi.IoUsage {
	if st.IOPressure == nil {
		return nil
	}
	return &runtimeapi.IoUsage{Timestamp: st.At.UnixNano(), Psi: psiStats(st.IOPressure)}
}

func psiStats(p *shim.Pressure) *runtimeapi.PsiStats {
	if p == nil {
		return nil
	}
	data := func(s shim.Stall) *runtimeapi.PsiData {
		return &runtimeapi.PsiData{Total: uint64(s.Total), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &runtimeapi.PsiStats{Some: data(p.Some), Full: data(p.Full)}
}

func uint64Value(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

func nowNanos() int64 { return time.Now().UnixNano() }
