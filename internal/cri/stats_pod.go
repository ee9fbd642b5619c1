package cri

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// PodSandboxStats reads what a sandbox uses: its pod's cgroup, or the sum of its
// running containers if the pod has none of its own; and its network.
func (s *Service) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	sb, err := s.sandbox(id)
	if err != nil {
		return nil, err
	}
	return s.sandboxStats(ctx, sb, s.containersOf(sb.id), s.podCgroups())
}

// ListPodSandboxStats reads what ready sandboxes use.
func (s *Service) ListPodSandboxStats(ctx context.Context, f *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	list := s.readySandboxes(func(sb *sandbox) bool {
		return strings.HasPrefix(sb.id, f.GetId()) && labelsMatch(f.GetLabelSelector(), sb.config.GetLabels())
	})
	containers, cgroups := s.containersBySandbox(), s.podCgroups()
	var out []*runtimeapi.PodSandboxStats
	for _, sb := range list {
		st, err := s.sandboxStats(ctx, sb, containers[sb.id], cgroups)
		if err != nil {
			s.log.Debug("cannot read a sandbox's use", "id", sb.id, "err", err) // it may just have ended
			continue
		}
		out = append(out, st)
	}
	return out, ctx.Err()
}

// readySandboxes lists the sandboxes that ok says, if they are ready.
func (s *Service) readySandboxes(ok func(*sandbox) bool) (out []*sandbox) {
	for _, sb := range s.sandboxesWhere(ok) {
		if sb.state() == store.SandboxReady {
			out = append(out, sb)
		}
	}
	return out
}

// containersBySandbox is containersOf for all sandboxes at once.
func (s *Service) containersBySandbox() map[string][]*container {
	by := make(map[string][]*container)
	for _, c := range s.allContainers() {
		by[c.sandboxID] = append(by[c.sandboxID], c)
	}
	return by
}

func (s *Service) sandboxStats(ctx context.Context, sb *sandbox, containers []*container, cgroups podCgroups) (*runtimeapi.PodSandboxStats, error) {
	running := s.runningUsage(ctx, containers)
	linux := &runtimeapi.LinuxPodSandboxStats{}
	err := errNoPodCgroup
	if group := cgroups.of(sb); group != "" {
		err = s.readPodCgroup(ctx, sb, group, linux)
	}
	switch {
	case errors.Is(err, errNoPodCgroup), errors.Is(err, shim.ErrNotFound):
		sumUp(running, linux)
	case err != nil:
		return nil, fmt.Errorf("cannot read what sandbox %s uses: %w", sb.id, err)
	}
	for _, u := range running {
		linux.Containers = append(linux.Containers, u.stats)
	}
	if sb.state() == store.SandboxReady {
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
	}, ctx.Err()
}

var errNoPodCgroup = errors.New("the pod has no cgroup of its own")

// readPodCgroup reads everything from the pod's cgroup: also what containers used
// that are gone, and what runs in it beside them.
func (s *Service) readPodCgroup(ctx context.Context, sb *sandbox, group string, out *runtimeapi.LinuxPodSandboxStats) error {
	st, err := s.cfg.Shim.GroupStats(ctx, group)
	if err != nil {
		return err
	}
	out.Cpu = cpuUsage(st, sb.cpu.read(time.Now(), st.CPUUsage))
	out.Memory = memoryUsage(st)
	out.Io = ioUsage(st)
	out.Process = processUsage(st.At.UnixNano(), st.Processes)
	return nil
}

func processUsage(at int64, count uint64) *runtimeapi.ProcessUsage {
	return &runtimeapi.ProcessUsage{Timestamp: at, ProcessCount: uint64Value(count)}
}

// sumUp adds running containers up. A time of waiting has no sum.
func sumUp(running []containerUsage, out *runtimeapi.LinuxPodSandboxStats) {
	var sum shim.Stats
	sum.At = time.Now()
	limited := len(running) > 0
	var nanoCores *uint64
	for _, u := range running {
		sum.CPUUsage += u.read.CPUUsage
		sum.MemoryUsageBytes += u.read.MemoryUsageBytes
		sum.MemoryWorkingSetBytes += u.read.MemoryWorkingSetBytes
		sum.MemoryRSSBytes += u.read.MemoryRSSBytes
		sum.PageFaults += u.read.PageFaults
		sum.MajorPageFaults += u.read.MajorPageFaults
		sum.MemoryLimitBytes += u.read.MemoryLimitBytes
		sum.Processes += u.read.Processes
		limited = limited && u.read.MemoryLimitBytes > 0
		if n := u.stats.GetCpu().GetUsageNanoCores(); n != nil {
			total := n.GetValue()
			if nanoCores != nil {
				total += *nanoCores
			}
			nanoCores = &total
		}
	}
	if !limited { // one without a limit makes a pod without
		sum.MemoryLimitBytes = 0
	}
	out.Cpu = cpuUsage(sum, nanoCores)
	out.Memory = memoryUsage(sum)
	out.Process = processUsage(sum.At.UnixNano(), sum.Processes)
}

// podCgroups says which pods are below a cgroup, by its path below the
// hierarchies.
type podCgroups struct {
	root string
	pods map[string]map[string]bool // cgroup → uids
}

func (s *Service) podCgroups() podCgroups {
	all := podCgroups{root: path.Join("/", s.cfg.CgroupRoot), pods: make(map[string]map[string]bool)}
	for _, sb := range s.allSandboxes() {
		for group := all.parent(sb); group != "/"; group = path.Dir(group) {
			if all.pods[group] == nil {
				all.pods[group] = make(map[string]bool)
			}
			all.pods[group][podKey(sb)] = true
		}
	}
	return all
}

// parent is the cgroup that the sandbox's containers are in.
func (p podCgroups) parent(sb *sandbox) string {
	if parent := sb.config.GetLinux().GetCgroupParent(); parent != "" {
		return path.Join("/", parent)
	}
	return p.root
}

// of is the cgroup of the sandbox's pod: the one that it names as its parent,
// unless that is shared with others. "": the pod has none of its own.
func (p podCgroups) of(sb *sandbox) string {
	group := p.parent(sb)
	if group == "/" || group == p.root || len(p.pods[group]) != 1 {
		return ""
	}
	return group
}

// podKey stands for the pod of a sandbox: a pod may have several, one after the
// other, in one cgroup.
func podKey(sb *sandbox) string {
	if uid := sb.config.GetMetadata().GetUid(); uid != "" {
		return uid
	}
	return sb.id
}
