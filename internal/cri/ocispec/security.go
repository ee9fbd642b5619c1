package ocispec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const allCapabilities = "ALL"

// setCapabilities starts from containerd's default set. "ALL" is applied
// first, so that ALL with single exceptions works in both directions.
// Capabilities the runtime lacks itself are left out: the kernel would refuse
// the whole set (Missing names them for a warning). Unlike containerd it
// honours ambient capabilities (KEP-2763).
func setCapabilities(s *specs.Spec, in Input) error {
	sc := in.securityContext()
	want := capabilitiesWanted(s.Process.Capabilities.Bounding, sc, in.Host.Capabilities)
	own := func(c string) bool { return slices.Contains(in.Host.Capabilities, c) }
	set := keep(want, own)
	ambient := keep(capNames(sc.GetCapabilities().GetAddAmbientCapabilities()), own)
	s.Process.Capabilities = &specs.LinuxCapabilities{
		Bounding:    set,
		Effective:   slices.Clone(set),
		Permitted:   slices.Clone(set),
		Inheritable: slices.Clone(ambient),
		Ambient:     ambient,
	}
	return nil
}

func capabilitiesWanted(defaults []string, sc *runtimeapi.LinuxContainerSecurityContext, all []string) []string {
	if sc.GetPrivileged() {
		return slices.Clone(all)
	}
	c := sc.GetCapabilities()
	set := slices.Clone(defaults)
	if hasAll(c.GetAddCapabilities()) {
		set = slices.Clone(all)
	}
	if hasAll(c.GetDropCapabilities()) {
		set = nil
	}
	add := slices.Concat(capNames(c.GetAddCapabilities()), capNames(c.GetAddAmbientCapabilities()))
	for _, name := range add {
		if !slices.Contains(set, name) {
			set = append(set, name)
		}
	}
	drop := capNames(c.GetDropCapabilities())
	return keep(set, func(name string) bool { return !slices.Contains(drop, name) })
}

// Missing lists the capabilities a container asks for by name and does not
// get, because the runtime has not got them.
func Missing(c *runtimeapi.ContainerConfig, host Host) []string {
	sc := c.GetLinux().GetSecurityContext().GetCapabilities()
	add := slices.Concat(capNames(sc.GetAddCapabilities()), capNames(sc.GetAddAmbientCapabilities()))
	return keep(add, func(name string) bool { return !slices.Contains(host.Capabilities, name) })
}

// Unknown lists the names in a container's capabilities that no kernel has. One
// that is misspelled where it is to be dropped would stay.
func Unknown(c *runtimeapi.ContainerConfig) []string {
	sc := c.GetLinux().GetSecurityContext().GetCapabilities()
	all := slices.Concat(capNames(sc.GetAddCapabilities()), capNames(sc.GetAddAmbientCapabilities()), capNames(sc.GetDropCapabilities()))
	return keep(all, func(name string) bool { return !slices.Contains(cap.Known(), name) })
}

func hasAll(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, allCapabilities) })
}

// capNames spells names as CAP_…, without "ALL".
func capNames(names []string) []string {
	var out []string
	for _, n := range names {
		n = strings.ToUpper(n)
		if n == allCapabilities {
			continue
		}
		if !strings.HasPrefix(n, "CAP_") {
			n = "CAP_" + n
		}
		out = append(out, n)
	}
	return out
}

func keep(list []string, f func(string) bool) []string {
	var out []string
	for _, v := range list {
		if f(v) {
			out = append(out, v)
		}
	}
	return out
}

// setPaths masks and protects what the caller asks for and nothing else: the
// Pod's procMount is decided where the CRI configuration is made.
func setPaths(s *specs.Spec, in Input) error {
	sc := in.securityContext()
	s.Linux.MaskedPaths, s.Linux.ReadonlyPaths = nil, nil
	if sc.GetPrivileged() {
		return nil
	}
	s.Linux.MaskedPaths = slices.Clone(sc.GetMaskedPaths())
	s.Linux.ReadonlyPaths = slices.Clone(sc.GetReadonlyPaths())
	return nil
}

// setSeccomp applies the profile, never to a privileged container. No profile
// at all means unconfined, as in the CRI.
func setSeccomp(s *specs.Spec, in Input) error {
	sc := in.securityContext()
	p := sc.GetSeccomp()
	if p == nil || sc.GetPrivileged() || p.GetProfileType() == runtimeapi.SecurityProfile_Unconfined {
		return nil
	}
	if in.Host.DefaultSeccomp == nil {
		return errors.New("cannot apply a seccomp profile: this kernel has no seccomp")
	}
	switch p.GetProfileType() {
	case runtimeapi.SecurityProfile_RuntimeDefault:
		s.Linux.Seccomp = in.Host.DefaultSeccomp(s)
	case runtimeapi.SecurityProfile_Localhost:
		if in.Seccomp == nil {
			return fmt.Errorf("cannot apply seccomp profile %q: it was not read", p.GetLocalhostRef())
		}
		profile := in.Seccomp.Profile
		s.Linux.Seccomp = &profile
	default:
		return fmt.Errorf("unknown seccomp profile type %v", p.GetProfileType())
	}
	return nil
}

// setAppArmor applies the profile, if the kernel has AppArmor. Without it a
// named profile is an error, while RuntimeDefault means no more than what this
// machine does by default: nothing.
func setAppArmor(s *specs.Spec, in Input) error {
	s.Process.ApparmorProfile = ""
	sc := in.securityContext()
	p := sc.GetApparmor()
	switch p.GetProfileType() {
	case runtimeapi.SecurityProfile_Unconfined:
		return nil
	case runtimeapi.SecurityProfile_Localhost:
		if !in.Host.AppArmor {
			return fmt.Errorf("cannot apply AppArmor profile %q: this kernel has no AppArmor", p.GetLocalhostRef())
		}
		if !sc.GetPrivileged() {
			s.Process.ApparmorProfile = strings.TrimPrefix(p.GetLocalhostRef(), "localhost/")
		}
		return nil
	case runtimeapi.SecurityProfile_RuntimeDefault: // also when there is no profile
		if !sc.GetPrivileged() {
			s.Process.ApparmorProfile = in.Host.AppArmorDefault
		}
		return nil
	default:
		return fmt.Errorf("unknown AppArmor profile type %v", p.GetProfileType())
	}
}
