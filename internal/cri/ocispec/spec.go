package ocispec

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RootfsDir is the name of the root file system's folder in a bundle.
const RootfsDir = "rootfs"

// Input is everything a container's specification depends on.
type Input struct {
	ID      string // of the container; last element of its cgroup path
	Config  *runtimeapi.ContainerConfig
	Sandbox *runtimeapi.PodSandboxConfig
	Image   *imgspec.ImageConfig // nil: an image without defaults

	User         User         // as resolved in the image
	Namespaces   Namespaces   // what the container joins
	Mounts       []Mount      // binds; they replace default mounts of the same destination
	Devices      []Device     // asked for by the pod, or all of the host's if privileged
	CgroupParent string       // cgroupfs path; "": containers sit in the root of Host.CgroupRoot
	Hostname     string       // value of $HOSTNAME
	Seccomp      *SeccompFile // the profile of type Localhost, read by the caller

	Host Host
}

// User is who the container's first process runs as.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplemental, the primary one included if it belongs there
}

// Namespaces says which namespaces a container joins. An empty path means the
// host's, except for PID.
type Namespaces struct {
	Network, IPC, UTS string
	User              string // of a user namespace that has its mappings
	PID               string // path to join; only looked at if PIDMode is JoinPID
	PIDMode           PIDMode
}

// PIDMode says where a container's pid namespace comes from.
type PIDMode int

const (
	OwnPID  PIDMode = iota // a new one for this container
	HostPID                // the host's
	JoinPID                // that of Namespaces.PID
)

// Device is a device node of the host that the container gets.
type Device struct {
	Node   specs.LinuxDevice
	Access string // some of "rwm"; "": node only, no cgroup rule
}

// SeccompFile is a profile read from the host.
type SeccompFile struct {
	Profile specs.LinuxSeccomp
}

// Host is what a specification depends on and is the same for every container.
type Host struct {
	Base         *specs.Spec // containerd's defaults; copied, never changed
	Capabilities []string    // those the runtime itself has, as CAP_…; a container never gets others
	Unified      bool        // cgroup v2 only
	Hugetlb      bool        // the hugetlb controller can be used
	SwapLimit    bool        // swap can be limited
	// OOMScoreFloor is the lowest oom_score_adj the runtime may give, -1000 if
	// it has CAP_SYS_RESOURCE. Lower wishes are raised to it.
	OOMScoreFloor int
	// DefaultSeccomp renders the RuntimeDefault profile for a specification
	// whose capabilities are set. nil: the kernel has no seccomp.
	DefaultSeccomp func(*specs.Spec) *specs.LinuxSeccomp
	// AppArmorDefault is the name of the loaded RuntimeDefault profile. "": the
	// kernel has no AppArmor or the profile could not be loaded.
	AppArmorDefault string
	AppArmor        bool // the kernel has AppArmor
	CgroupRoot      string
	// CgroupMountOptions must be given again when cgroup2 is mounted without a
	// cgroup namespace, or they would be stripped from the host's mount.
	CgroupMountOptions []string
}

// Build renders the specification. Its errors are about the configuration and
// are meant for the pod's author.
func Build(in Input) (*specs.Spec, error) {
	if in.Image == nil {
		in.Image = &imgspec.ImageConfig{}
	}
	s, err := cloneBase(in.Host.Base)
	if err != nil {
		return nil, err
	}
	s.Root = &specs.Root{Path: RootfsDir, Readonly: in.securityContext().GetReadonlyRootfs()}
	s.Linux.Seccomp = nil
	s.Linux.CgroupsPath = cgroupsPath(in)
	for _, part := range []func(*specs.Spec, Input) error{
		setProcess,
		setNamespaces,
		setMounts,
		setDevices,
		setResources,
		setCapabilities,
		setPaths,
		setAppArmor,
		setSeccomp, // after the capabilities: the default profile depends on them
	} {
		if err := part(s, in); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (in Input) securityContext() *runtimeapi.LinuxContainerSecurityContext {
	return in.Config.GetLinux().GetSecurityContext()
}

func cloneBase(base *specs.Spec) (*specs.Spec, error) {
	if base == nil || base.Linux == nil || base.Process == nil {
		return nil, errors.New("ocispec: Host.Base is required")
	}
	raw, err := json.Marshal(base)
	if err != nil {
		return nil, fmt.Errorf("cannot copy the default specification: %w", err)
	}
	s := &specs.Spec{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("cannot copy the default specification: %w", err)
	}
	return s, nil
}

func cgroupsPath(in Input) string {
	parent := in.CgroupParent
	if parent == "" {
		parent = in.Host.CgroupRoot
	}
	return path.Join("/", parent, in.ID)
}

// setNamespaces lists what the container joins or gets anew. It always has its
// own mount namespace. With cgroup v2 an unprivileged container has its own
// cgroup namespace, as with containerd.
func setNamespaces(s *specs.Spec, in Input) error {
	ns := in.Namespaces
	list := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	for _, n := range []specs.LinuxNamespace{
		{Type: specs.NetworkNamespace, Path: ns.Network},
		{Type: specs.IPCNamespace, Path: ns.IPC},
		{Type: specs.UTSNamespace, Path: ns.UTS},
		{Type: specs.UserNamespace, Path: ns.User},
	} {
		if n.Path != "" {
			list = append(list, n)
		}
	}
	switch ns.PIDMode {
	case OwnPID:
		list = append(list, specs.LinuxNamespace{Type: specs.PIDNamespace})
	case JoinPID:
		if ns.PID == "" {
			return errors.New("cannot join a pid namespace: its path is not known")
		}
		list = append(list, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: ns.PID})
	case HostPID:
	}
	if in.Host.Unified && !in.securityContext().GetPrivileged() {
		list = append(list, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	s.Linux.Namespaces = list
	return nil
}
