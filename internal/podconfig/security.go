package podconfig

import (
	"fmt"
	"math"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/format"
)

// What containers may not see, or only read, in /proc and /sys, unless they
// ask for procMount: Unmasked.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// effective is the security context that counts for the container: the pod's,
// overridden field by field. It is never nil and shares no pointers that the
// caller may change.
func effective(pod *corev1.Pod, c *corev1.Container) *corev1.SecurityContext {
	sc := &corev1.SecurityContext{}
	if c.SecurityContext != nil {
		sc = c.SecurityContext.DeepCopy()
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return sc
	}
	if sc.RunAsUser == nil {
		sc.RunAsUser = p.RunAsUser
	}
	if sc.RunAsGroup == nil {
		sc.RunAsGroup = p.RunAsGroup
	}
	if sc.RunAsNonRoot == nil {
		sc.RunAsNonRoot = p.RunAsNonRoot
	}
	if sc.SELinuxOptions == nil {
		sc.SELinuxOptions = p.SELinuxOptions
	}
	if sc.SeccompProfile == nil {
		sc.SeccompProfile = p.SeccompProfile
	}
	if sc.AppArmorProfile == nil {
		sc.AppArmorProfile = p.AppArmorProfile
	}
	return sc
}

// containerSecurity is the security part of a container's config. Its error is
// a problem in words.
func containerSecurity(pod *corev1.Pod, c *corev1.Container, f ContainerFacts) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := effective(pod, c)
	if err := checkNonRoot(pod, c, sc, f.ImageUser); err != nil {
		return nil, err
	}
	s := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(pod, f.Facts),
		Privileged:       isTrue(sc.Privileged),
		ReadonlyRootfs:   isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:       sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		RunAsUser:        int64Value(sc.RunAsUser),
		RunAsGroup:       int64Value(sc.RunAsGroup),
		SelinuxOptions:   selinux(sc.SELinuxOptions),
		Capabilities:     capabilities(sc.Capabilities),
	}
	if f.TargetID != "" && s.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		s.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		s.NamespaceOptions.TargetId = f.TargetID
	}
	if s.RunAsUser == nil {
		switch {
		case f.ImageUser.UID != nil:
			s.RunAsUser = int64Value(f.ImageUser.UID)
		case f.ImageUser.Name != "":
			s.RunAsUsername = f.ImageUser.Name
		default:
			s.RunAsUser = &runtimeapi.Int64Value{Value: 0}
		}
	}
	if p := pod.Spec.SecurityContext; p != nil {
		s.SupplementalGroups = groups(p)
		var err error
		if s.SupplementalGroupsPolicy, err = groupsPolicy(p); err != nil {
			return nil, err
		}
	}
	if sc.ProcMount == nil || *sc.ProcMount != corev1.UnmaskedProcMount {
		s.MaskedPaths = append(slices.Clone(maskedPaths), f.MaskedPaths...)
		s.ReadonlyPaths = slices.Clone(readonlyPaths)
	}
	var err error
	if s.Seccomp, err = seccomp(sc.SeccompProfile, f.Facts); err != nil {
		return nil, err
	}
	//nolint:staticcheck // runtimes older than Apparmor read the old field
	if s.Apparmor, s.ApparmorProfile, err = appArmor(pod, c, sc.AppArmorProfile); err != nil {
		return nil, err
	}
	return s, nil
}

// checkNonRoot holds the container to runAsNonRoot. A user given by name cannot
// be checked: the image says who it is.
func checkNonRoot(pod *corev1.Pod, c *corev1.Container, sc *corev1.SecurityContext, image ImageUser) error {
	if !isTrue(sc.RunAsNonRoot) {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", format.Pod(pod), c.Name)
	switch {
	case sc.RunAsUser != nil:
		if *sc.RunAsUser == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy %s; set runAsUser to another number than 0", where)
		}
	case image.UID != nil:
		if *image.UID == 0 {
			return fmt.Errorf("container has runAsNonRoot and image will run as root %s; set runAsUser, or use an image with another user", where)
		}
		if *image.UID < 0 || *image.UID > math.MaxInt32 {
			return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d) %s; set runAsUser to 1–%d", *image.UID, where, math.MaxInt32)
		}
	case image.Name != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s; set runAsUser to its number", image.Name, where)
	default:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s; set runAsUser, or use an image with another user", where)
	}
	return nil
}

func seccomp(p *corev1.SeccompProfile, f Facts) (*runtimeapi.SecurityProfile, error) {
	unconfined := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	byRuntime := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	if p == nil {
		if f.SeccompDefault {
			return byRuntime, nil
		}
		return unconfined, nil
	}
	switch p.Type {
	case corev1.SeccompProfileTypeUnconfined:
		return unconfined, nil
	case corev1.SeccompProfileTypeRuntimeDefault:
		return byRuntime, nil
	case corev1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return nil, fmt.Errorf("seccompProfile is of type Localhost and names no profile; set localhostProfile to a file below %s", f.SeccompRoot)
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: path.Join(f.SeccompRoot, *p.LocalhostProfile),
		}, nil
	}
	return nil, fmt.Errorf("seccompProfile has unknown type %q; use RuntimeDefault, Localhost or Unconfined", p.Type)
}

// appArmor returns the profile in CRI's present and former spelling. A
// container's own field counts first, then the old annotation, then the pod.
func appArmor(pod *corev1.Pod, c *corev1.Container, p *corev1.AppArmorProfile) (*runtimeapi.SecurityProfile, string, error) {
	own := c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil
	if old, ok := pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; ok && !own {
		if fromOld := appArmorAnnotation(old); fromOld != nil {
			p = fromOld
		}
	}
	if p == nil {
		return nil, "", nil
	}
	switch p.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case corev1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			corev1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil {
			return nil, "", fmt.Errorf("appArmorProfile is of type Localhost and names no profile; set localhostProfile to one that is loaded on the node")
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile},
			corev1.DeprecatedAppArmorBetaProfileNamePrefix + *p.LocalhostProfile, nil
	}
	return nil, "", fmt.Errorf("appArmorProfile has unknown type %q; use RuntimeDefault, Localhost or Unconfined", p.Type)
}

// appArmorAnnotation reads the annotation that came before the field; nil: it
// says nothing.
func appArmorAnnotation(value string) *corev1.AppArmorProfile {
	prefix := corev1.DeprecatedAppArmorBetaProfileNamePrefix
	switch {
	case value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case len(value) > len(prefix) && value[:len(prefix)] == prefix:
		name := value[len(prefix):]
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return nil
}

// namespaces says which namespaces the pod's containers share with whom.
func namespaces(pod *corev1.Pod, f Facts) *runtimeapi.NamespaceOption {
	n := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD,
		Ipc:     runtimeapi.NamespaceMode_POD,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
	}
	if pod.Spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		n.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(pod.Spec.ShareProcessNamespace):
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
		n.UsernsOptions = f.UserNamespace
	}
	return n
}

// groups are the supplemental groups of the pod's processes; its fsGroup is one
// of them, so that they may use its volumes.
func groups(sc *corev1.PodSecurityContext) []int64 {
	var all []int64
	if sc.FSGroup != nil {
		all = append(all, *sc.FSGroup)
	}
	return append(all, sc.SupplementalGroups...)
}

func groupsPolicy(sc *corev1.PodSecurityContext) (runtimeapi.SupplementalGroupsPolicy, error) {
	if sc.SupplementalGroupsPolicy == nil {
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	}
	switch *sc.SupplementalGroupsPolicy {
	case corev1.SupplementalGroupsPolicyMerge:
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	case corev1.SupplementalGroupsPolicyStrict:
		return runtimeapi.SupplementalGroupsPolicy_Strict, nil
	}
	return 0, fmt.Errorf("supplementalGroupsPolicy %q is unknown; use Merge or Strict", *sc.SupplementalGroupsPolicy)
}

func capabilities(caps *corev1.Capabilities) *runtimeapi.Capability {
	if caps == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, name := range caps.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range caps.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// anyPrivileged says whether some container of the pod is privileged.
func anyPrivileged(pod *corev1.Pod) bool {
	privileged := func(sc *corev1.SecurityContext) bool { return sc != nil && isTrue(sc.Privileged) }
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if privileged(list[i].SecurityContext) {
				return true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if privileged(pod.Spec.EphemeralContainers[i].SecurityContext) {
			return true
		}
	}
	return false
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

func isTrue(b *bool) bool { return b != nil && *b }
