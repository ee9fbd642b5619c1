package cri

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/contrib/apparmor"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	kernelapparmor "github.com/containerd/containerd/v2/pkg/apparmor"
	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	kernelseccomp "github.com/containerd/containerd/v2/pkg/seccomp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/cri/ocispec"
)

const (
	cgroupMountpoint = "/sys/fs/cgroup"
	appArmorProfile  = "berth-default"
	lowestOOMScore   = -1000
)

// inspectHost looks up, once, what specifications depend on.
func inspectHost(cgroupRoot string) (ocispec.Host, error) {
	base, err := oci.GenerateSpec(namespaces.WithNamespace(context.Background(), "berth"), nil, &containers.Container{ID: "base"})
	if err != nil {
		return ocispec.Host{}, fmt.Errorf("cannot make the default specification: %w", err)
	}
	caps, err := cap.Current()
	if err != nil {
		return ocispec.Host{}, fmt.Errorf("cannot read own capabilities: %w", err)
	}
	h := ocispec.Host{
		Base:          base,
		Capabilities:  caps,
		OOMScoreFloor: lowestOOMScore,
		AppArmor:      kernelapparmor.HostSupports(),
		CgroupRoot:    cgroupRoot,
	}
	if !slices.Contains(caps, "CAP_SYS_RESOURCE") {
		if h.OOMScoreFloor, err = readInt("/proc/self/oom_score_adj"); err != nil {
			return ocispec.Host{}, fmt.Errorf("cannot read own oom_score_adj: %w", err)
		}
	}
	if kernelseccomp.IsEnabled() {
		h.DefaultSeccomp = seccomp.DefaultProfile
	}
	if h.AppArmor && apparmor.LoadDefaultProfile(appArmorProfile) == nil {
		h.AppArmorDefault = appArmorProfile
	}
	inspectCgroups(&h)
	return h, nil
}

func inspectCgroups(h *ocispec.Host) {
	var st unix.Statfs_t
	if unix.Statfs(cgroupMountpoint, &st) == nil {
		h.Unified = st.Type == unix.CGROUP2_SUPER_MAGIC
	}
	if h.Unified {
		controllers, err := os.ReadFile(cgroupMountpoint + "/cgroup.controllers")
		h.Hugetlb = err == nil && slices.Contains(strings.Fields(string(controllers)), "hugetlb")
		h.SwapLimit = true // a controller without swap support ignores the value
		if infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(cgroupMountpoint)); err == nil && len(infos) == 1 {
			for opt := range strings.SplitSeq(infos[0].VFSOptions, ",") {
				if opt == "nsdelegate" || opt == "memory_recursiveprot" {
					h.CgroupMountOptions = append(h.CgroupMountOptions, opt)
				}
			}
		}
		return
	}
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	h.Hugetlb = exists(cgroupMountpoint + "/hugetlb/cgroup.procs")
	h.SwapLimit = exists(cgroupMountpoint + "/memory/memory.memsw.limit_in_bytes")
}

func readInt(path string) (int, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(raw)))
}
