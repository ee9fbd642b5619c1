package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/ocispec"
)

// resolveDevices looks up the devices a container asks for, and for a privileged
// one all of the host's.
func resolveDevices(config *runtimeapi.ContainerConfig) ([]ocispec.Device, error) {
	var out []ocispec.Device
	for _, d := range config.GetDevices() {
		path, err := filepath.EvalSymlinks(d.GetHostPath())
		if err != nil {
			return nil, fmt.Errorf("cannot give device %s: %w", d.GetHostPath(), err)
		}
		// A folder stands for all devices in it.
		found := &specs.Spec{Linux: &specs.Linux{Resources: &specs.LinuxResources{}}}
		if err := oci.WithDevices(path, d.GetContainerPath(), d.GetPermissions())(context.Background(), nil, nil, found); err != nil {
			return nil, fmt.Errorf("cannot give device %s: %w", d.GetHostPath(), err)
		}
		for _, node := range found.Linux.Devices {
			out = append(out, ocispec.Device{Node: node, Access: d.GetPermissions()})
		}
	}
	if !config.GetLinux().GetSecurityContext().GetPrivileged() {
		return out, nil
	}
	all, err := oci.HostDevices()
	if err != nil {
		return nil, fmt.Errorf("cannot list the host's devices: %w", err)
	}
	for _, node := range all {
		out = append(out, ocispec.Device{Node: node})
	}
	return out, nil
}

// readSeccomp reads the profile of a container that names a file.
func readSeccomp(config *runtimeapi.ContainerConfig) (*ocispec.SeccompFile, error) {
	p := config.GetLinux().GetSecurityContext().GetSeccomp()
	if p.GetProfileType() != runtimeapi.SecurityProfile_Localhost {
		return nil, nil
	}
	path := strings.TrimPrefix(p.GetLocalhostRef(), "localhost/")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read seccomp profile: %w", err)
	}
	f := &ocispec.SeccompFile{}
	if err := json.Unmarshal(raw, &f.Profile); err != nil {
		return nil, fmt.Errorf("cannot parse seccomp profile %s: %w", path, err)
	}
	return f, nil
}
