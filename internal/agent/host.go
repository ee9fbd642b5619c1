package agent

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/podconfig"
)

// host is what does not change about the machine while berth runs.
type host struct {
	name          string
	ips           []string
	hostsFile     []byte
	memoryBytes   int64
	allocatable   corev1.ResourceList
	hugePageSizes []string
	cgroupV2      bool
	swap          bool
	rro           bool // mounts can be read-only recursively
}

func inspectHost(bridge, root string) (host, error) {
	h := host{ips: hostIPs(bridge), cgroupV2: cgroups.IsCgroup2UnifiedMode(), hugePageSizes: cgroups.HugePageSizes()}
	name, err := os.Hostname()
	if err != nil {
		return h, fmt.Errorf("cannot read the machine's name: %w", err)
	}
	h.name = strings.ToLower(name) // as nodes are named
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return h, fmt.Errorf("cannot read the machine's memory: %w", err)
	}
	h.memoryBytes = int64(si.Totalram) * int64(si.Unit) //nolint:gosec // fits; the types differ between architectures
	var disk unix.Statfs_t
	if err := unix.Statfs(root, &disk); err != nil {
		return h, fmt.Errorf("cannot read the size of the disk of %s: %w", root, err)
	}
	h.allocatable = corev1.ResourceList{
		// Containers write there: what the kubelet calls nodefs.
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(disk.Blocks)*disk.Frsize, resource.BinarySI), //nolint:gosec // fits
		corev1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(h.memoryBytes, resource.BinarySI),
	}
	// A machine without /etc/hosts is odd, and no reason not to run pods.
	h.hostsFile, _ = os.ReadFile("/etc/hosts")
	h.swap = swapAccounting(h.cgroupV2)
	h.rro = unix.MountSetattr(-1, "/", 0, &unix.MountAttr{}) != unix.ENOSYS
	return h, nil
}

// resolvConf is what configures the machine's resolver. Where that is
// systemd-resolved, upstreamResolvConf has the servers that it asks itself.
const (
	resolvConf         = "/etc/resolv.conf"
	upstreamResolvConf = "/run/systemd/resolve/resolv.conf"
)

// readResolvConf reads a resolver's configuration each time it is needed: a
// machine that moves to another network has another one. nil: there is none.
func readResolvConf(path string) *runtimeapi.DNSConfig {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return podconfig.ParseResolvConf(b)
}

func swapAccounting(v2 bool) bool {
	if v2 {
		return true
	}
	_, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	return err == nil
}

// hostIPs are the machine's addresses that others can reach, one a family, else
// the loopback address.
func hostIPs(bridge string) []string {
	var v4, v6 string
	links, err := net.Interfaces()
	if err == nil {
		slices.SortFunc(links, func(a, b net.Interface) int { return a.Index - b.Index })
	}
	for _, l := range links {
		if l.Flags&net.FlagUp == 0 || l.Flags&net.FlagLoopback != 0 || strings.HasPrefix(l.Name, "berth") || l.Name == bridge {
			continue
		}
		addrs, err := l.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok || !n.IP.IsGlobalUnicast() {
				continue
			}
			if n.IP.To4() != nil {
				if v4 == "" {
					v4 = n.IP.String()
				}
			} else if v6 == "" {
				v6 = n.IP.String()
			}
		}
	}
	var ips []string
	for _, ip := range []string{v4, v6} {
		if ip != "" {
			ips = append(ips, ip)
		}
	}
	if len(ips) == 0 {
		ips = []string{"127.0.0.1"}
	}
	return ips
}

// mustBeRoot says what is missing for an agent that has not the rights it needs.
func mustBeRoot() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("berth needs root to make namespaces, mounts, cgroups and networks, and runs as uid %d: use sudo", os.Geteuid())
	}
	return nil
}

// cgroupsWritable says clearly why no cgroup can be made.
func cgroupsWritable() error {
	dir := "/sys/fs/cgroup"
	if !cgroups.IsCgroup2UnifiedMode() {
		dir = filepath.Join(dir, "memory")
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fmt.Errorf("cannot make cgroups below %s: %w; berth needs them mounted read-write", dir, err)
	}
	return nil
}
