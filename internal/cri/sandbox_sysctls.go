package cri

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sysctlPath is a sysctl's file below /proc/sys. Names may separate by dots or
// by slashes; whichever comes first separates, and the other one swaps with it
// (net.ipv4.conf.eth0/1.forwarding is of the interface eth0.1).
func sysctlPath(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '/' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

// sysctlNamespace is the kind of namespace that has its own value of a sysctl.
// ok is false if only the machine has one.
func sysctlNamespace(name string) (kind nsKind, ok bool) {
	path := sysctlPath(name)
	switch {
	case strings.HasPrefix(path, "net/"):
		return nsNet, true
	case strings.HasPrefix(path, "fs/mqueue/"), strings.HasPrefix(path, "kernel/msg"),
		strings.HasPrefix(path, "kernel/shm"), path == "kernel/sem":
		return nsIPC, true
	case path == "kernel/domainname":
		return nsUTS, true
	}
	return "", false
}

// validateSysctls refuses what would change the host.
func validateSysctls(config *runtimeapi.PodSandboxConfig) error {
	sb := &sandbox{config: config}
	own := sb.ownNamespaces()
	for _, name := range slices.Sorted(maps.Keys(config.GetLinux().GetSysctls())) {
		kind, ok := sysctlNamespace(name)
		switch {
		case !ok, strings.Contains(sysctlPath(name), ".."):
			return coded(codes.InvalidArgument, "sysctl %q can't be set for a pod: it belongs to the whole machine", name)
		case !slices.Contains(own, kind):
			return coded(codes.InvalidArgument, "sysctl %q can't be set for a pod that uses the host's %s namespace", name, kind)
		}
	}
	return nil
}

func (s *Service) applySysctls(sb *sandbox) error {
	sysctls := sb.config.GetLinux().GetSysctls()
	if len(sysctls) == 0 {
		return nil
	}
	return inNamespaces(s.namespaceDir(sb.id), sb.ownNamespaces(), func() error {
		for _, name := range slices.Sorted(maps.Keys(sysctls)) {
			path := filepath.Join("/proc/sys", sysctlPath(name))
			if err := os.WriteFile(path, []byte(sysctls[name]), 0o644); err != nil {
				return fmt.Errorf("cannot set sysctl %s to %q: %w", name, sysctls[name], err)
			}
		}
		return nil
	})
}
