package podconfig

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// Facts are what is known of the node and of a pod on it. The zero value of a
// field that is not marked as required means "none" or "no".
type Facts struct {
	// NodeName is the node's; default: what the pod's spec says.
	NodeName string
	// Attempt counts the creations of the pod's sandbox from 0.
	Attempt int
	// LogRoot is the folder that holds one log folder a pod; required.
	LogRoot string
	// CgroupParent is the pod's cgroup, as the runtime wants it named.
	CgroupParent string
	// HostDNS is the node's own resolver configuration (see ParseResolvConf).
	HostDNS *runtimeapi.DNSConfig
	// UpstreamDNS is the configuration behind HostDNS, where that names a
	// server of the node itself, such as systemd-resolved.
	UpstreamDNS *runtimeapi.DNSConfig
	// ClusterDNS are the addresses of the cluster's DNS servers. Without any,
	// pods that ask for ClusterFirst get HostDNS.
	ClusterDNS []string
	// ClusterDomain is the cluster's DNS domain, for example "cluster.local".
	ClusterDomain string
	// HostsFile is the content of the node's /etc/hosts, for pods on the host
	// network.
	HostsFile []byte
	// UserNamespace is the pod's own user namespace mapping; nil: the host's.
	// A pod with hostUsers: false needs one.
	UserNamespace *runtimeapi.UserNamespace
	// SeccompRoot is the folder that localhost seccomp profiles are named in.
	SeccompRoot string
	// SeccompDefault gives containers that name no profile the runtime's
	// default one instead of none.
	SeccompDefault bool
	// MemoryBytes is the machine's memory, for OOM scores; required for pods
	// that are Burstable.
	MemoryBytes int64
	// Allocatable is what the node has for pods. It stands in for limits that
	// are not set, in resourceFieldRef.
	Allocatable corev1.ResourceList
	// HugePageSizes are the machine's, as cgroups name them: "2MB", "1GB".
	HugePageSizes []string
	// CgroupV2 says that the node uses the unified hierarchy.
	CgroupV2 bool
	// SELinux says that it is on: what the node makes for the pod is relabelled.
	SELinux bool
	// SwapAccounting says that the kernel can limit a container's swap.
	SwapAccounting bool
}

// ContainerFacts are what is known when one container is about to be made.
type ContainerFacts struct {
	Facts
	// ContainerAttempt counts the creations of the container from 0.
	ContainerAttempt int
	// ImageRef is the image as the runtime names it, from its pull; required.
	ImageRef string
	// ImageUser is who the image runs as.
	ImageUser ImageUser
	// PodIPs and HostIPs are addresses, the primary one first.
	PodIPs  []string
	HostIPs []string
	// Volumes says where each of the pod's volumes is, by name.
	Volumes map[string]Volume
	// SubPaths are host paths of mounts with a sub-path, by index in the
	// container's volumeMounts, made safe by whoever resolved them. Mounts of
	// image volumes need none.
	SubPaths map[int]string
	// HostsPath is the host's file to mount at /etc/hosts; empty: none.
	HostsPath string
	// TerminationLogPath is the host's file to mount at the container's
	// terminationMessagePath; empty: none.
	TerminationLogPath string
	// ConfigMaps and Secrets are those of the pod's namespace that exist, by
	// name, at least the ones that Needs lists.
	ConfigMaps map[string]*corev1.ConfigMap
	Secrets    map[string]*corev1.Secret
	// EnvFiles are the contents of files that fileKeyRef names; a file that
	// does not exist is left out.
	EnvFiles map[EnvFile][]byte
	// Devices are given to the container in addition to what its mounts bring.
	Devices []*runtimeapi.Device
	// RecursiveReadOnly says that the runtime can mount recursively read-only.
	RecursiveReadOnly bool
	// TargetID is the container whose process namespace an ephemeral container
	// joins; empty: none.
	TargetID string
	// MaskedPaths are hidden from the container in addition to the usual ones,
	// for example thermal files of CPUs.
	MaskedPaths []string
}

// ImageUser is the user that an image is configured with. UID is set when it is
// a number, Name when it is not; neither: root.
type ImageUser struct {
	UID  *int64
	Name string
}

// Volume is a prepared volume of a pod.
type Volume struct {
	// HostPath is where it is on the host; empty for image volumes.
	HostPath string
	// ReadOnly says that every mount of it is read-only.
	ReadOnly bool
	// Relabel says that it is the pod's alone, so that SELinux may relabel it.
	Relabel bool
	// Image is the reference of an image volume as the runtime names it.
	Image string
}

// EnvFile is a file in a volume that holds environment variables.
type EnvFile struct {
	Volume string // name of the volume
	Path   string // in the volume
}

// Requirements are the things a container's config depends on that somebody
// must look up. Each is listed once, in order of appearance.
type Requirements struct {
	ConfigMaps []string
	Secrets    []string
	EnvFiles   []EnvFile
}

// Needs lists what must be in ContainerFacts for Container to succeed. Optional
// things are listed too: it is no error if they do not exist.
func Needs(c *corev1.Container) Requirements {
	var r Requirements
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			r.ConfigMaps = appendNew(r.ConfigMaps, from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			r.Secrets = appendNew(r.Secrets, from.SecretRef.Name)
		}
	}
	for _, env := range c.Env {
		switch from := env.ValueFrom; {
		case from == nil:
		case from.ConfigMapKeyRef != nil:
			r.ConfigMaps = appendNew(r.ConfigMaps, from.ConfigMapKeyRef.Name)
		case from.SecretKeyRef != nil:
			r.Secrets = appendNew(r.Secrets, from.SecretKeyRef.Name)
		case from.FileKeyRef != nil:
			r.EnvFiles = appendNew(r.EnvFiles, EnvFile{Volume: from.FileKeyRef.VolumeName, Path: from.FileKeyRef.Path})
		}
	}
	return r
}

func appendNew[T comparable](list []T, item T) []T {
	for _, have := range list {
		if have == item {
			return list
		}
	}
	return append(list, item)
}

// sandboxFailed and configFailed make errors that a pod's status can carry.
func sandboxFailed(problems ...string) error {
	return &lifecycle.Failed{
		Reason:  lifecycle.ReasonFailedCreatePodSandBox,
		Message: "cannot configure pod: " + strings.Join(problems, "; "),
	}
}

func configFailed(problems ...string) error {
	return &lifecycle.Failed{
		Reason:  lifecycle.ReasonCreateContainerConfigError,
		Message: strings.Join(problems, "; "),
	}
}
