package ocispec

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Mount is a bind of a path of the host, which exists and has no symlinks.
type Mount struct {
	Source, Destination string
	ReadOnly            bool
	RecursiveReadOnly   bool // only with ReadOnly and private propagation
	Propagation         runtimeapi.MountPropagation
	Options             []string // extra, such as noexec
	UIDs, GIDs          []specs.LinuxIDMapping
}

// setMounts takes containerd's defaults, without /run, adds the cgroup tree,
// lets Input.Mounts replace defaults, and puts parents before children.
func setMounts(s *specs.Spec, in Input) error {
	defaults := slices.DeleteFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == "/run" })
	defaults = append(defaults, cgroupMount(in))
	if in.securityContext().GetPrivileged() {
		for i, m := range defaults {
			if m.Type == "sysfs" {
				defaults[i].Options = replace(m.Options, "ro", "rw")
			}
		}
	}
	if in.Namespaces.User != "" && in.Namespaces.Network == "" {
		// sysfs can't be mounted in a user namespace that does not own the
		// network namespace.
		for i, m := range defaults {
			if m.Destination == "/sys" {
				defaults[i] = specs.Mount{
					Destination: "/sys", Type: "bind", Source: "/sys",
					Options: []string{"rbind", "rro", "nosuid", "noexec", "nodev"},
				}
			}
		}
	}

	given := make(map[string]bool, len(in.Mounts))
	for _, m := range in.Mounts {
		given[path.Clean(m.Destination)] = true
	}
	s.Mounts = slices.DeleteFunc(defaults, func(m specs.Mount) bool {
		d := path.Clean(m.Destination)
		return given[d] || given["/dev"] && strings.HasPrefix(d, "/dev/")
	})

	binds := slices.Clone(in.Mounts)
	slices.SortStableFunc(binds, func(a, b Mount) int { return cmp.Compare(depth(a.Destination), depth(b.Destination)) })
	for _, m := range binds {
		bind, err := m.oci()
		if err != nil {
			return err
		}
		s.Mounts = append(s.Mounts, bind)
		s.Linux.RootfsPropagation = widest(s.Linux.RootfsPropagation, m.Propagation)
	}
	return nil
}

func cgroupMount(in Input) specs.Mount {
	access := "ro"
	if in.securityContext().GetPrivileged() {
		access = "rw"
	}
	options := []string{"nosuid", "noexec", "nodev", "relatime", access}
	if in.Host.Unified && in.securityContext().GetPrivileged() {
		options = append(options, in.Host.CgroupMountOptions...)
	}
	return specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: options}
}

func (m Mount) oci() (specs.Mount, error) {
	options := []string{"rbind"}
	switch m.Propagation {
	case runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		options = append(options, "rprivate")
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		options = append(options, "rslave")
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		options = append(options, "rshared")
	default:
		return specs.Mount{}, fmt.Errorf("cannot mount %s: unknown propagation %v", m.Destination, m.Propagation)
	}
	switch {
	case m.RecursiveReadOnly && !m.ReadOnly:
		return specs.Mount{}, fmt.Errorf("cannot mount %s: recursive read-only conflicts with a writable mount", m.Destination)
	case m.RecursiveReadOnly && m.Propagation != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		return specs.Mount{}, fmt.Errorf("cannot mount %s: recursive read-only needs private propagation, got %v", m.Destination, m.Propagation)
	case m.RecursiveReadOnly:
		options = append(options, "rro")
	case m.ReadOnly:
		options = append(options, "ro")
	default:
		options = append(options, "rw")
	}
	return specs.Mount{
		Destination: m.Destination,
		Type:        "bind",
		Source:      m.Source,
		Options:     append(options, m.Options...),
		UIDMappings: m.UIDs,
		GIDMappings: m.GIDs,
	}, nil
}

// widest is the propagation the container's root needs for its mounts' sake.
func widest(have string, p runtimeapi.MountPropagation) string {
	switch p {
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return "rshared"
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		if have == "" {
			return "rslave"
		}
	case runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
	}
	return have
}

func depth(p string) int { return strings.Count(path.Clean(p), "/") }

func replace(list []string, from, to string) []string {
	out := slices.Clone(list)
	for i, v := range out {
		if v == from {
			out[i] = to
		}
	}
	return out
}
