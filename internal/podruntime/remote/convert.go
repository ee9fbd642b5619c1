package remote

import (
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podconfig"
)

// Reasons of runtimes that the API has another word for.
const (
	startError    = "StartError" // containerd, berth: the command could not be run
	statusUnknown = "ContainerStatusUnknown"
	unknown       = "Unknown" // containerd: it lost the exit
)

// sandboxOf puts a sandbox into the core's words.
func sandboxOf(s *runtimeapi.PodSandboxStatus) lifecycle.Sandbox {
	box := lifecycle.Sandbox{
		ID:          s.GetId(),
		Attempt:     int(s.GetMetadata().GetAttempt()),
		Ready:       s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   fromNanos(s.GetCreatedAt()),
		HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
	}
	if box.HostNetwork {
		return box
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		box.IPs = append(box.IPs, ip)
	}
	for _, ip := range s.GetNetwork().GetAdditionalIps() {
		box.IPs = append(box.IPs, ip.GetIp())
	}
	return box
}

// containerOf puts a container into the core's words.
func containerOf(s *runtimeapi.ContainerStatus) lifecycle.Container {
	c := lifecycle.Container{
		ID:         s.GetId(),
		Name:       s.GetLabels()[podconfig.LabelContainerName],
		Attempt:    int(s.GetMetadata().GetAttempt()),
		Hash:       s.GetAnnotations()[podconfig.AnnotationHash],
		State:      stateOf(s.GetState()),
		CreatedAt:  fromNanos(s.GetCreatedAt()),
		StartedAt:  fromNanos(s.GetStartedAt()),
		FinishedAt: fromNanos(s.GetFinishedAt()),
		ExitCode:   s.GetExitCode(),
		Reason:     s.GetReason(),
		Message:    s.GetMessage(),
		Image:      s.GetImage().GetImage(),
		ImageID:    s.GetImageRef(),
	}
	if named := s.GetImage().GetUserSpecifiedImage(); named != "" {
		c.Image = named
	}
	if u := s.GetUser().GetLinux(); u != nil {
		c.User = &lifecycle.User{UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: u.GetSupplementalGroups()}
	}
	if c.State != lifecycle.ContainerExited {
		return c
	}
	switch c.Reason {
	case startError:
		c.Reason = lifecycle.ReasonContainerCannotRun
	case statusUnknown, unknown:
		c.Reason = lifecycle.ReasonContainerStatusUnknown
		c.ExitUnknown = true
	}
	return c
}

// infoExitSignal is where berth's runtime tells which signal ended a container.
const infoExitSignal = "exitSignal"

// signalOf is the signal that ended a container, in a verbose status; 0: none, or
// the runtime does not tell.
func signalOf(info map[string]string) int32 {
	n, err := strconv.ParseInt(info[infoExitSignal], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

func stateOf(s runtimeapi.ContainerState) lifecycle.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return lifecycle.ContainerCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return lifecycle.ContainerRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return lifecycle.ContainerExited
	case runtimeapi.ContainerState_CONTAINER_UNKNOWN:
	}
	return lifecycle.ContainerUnknown
}

// fromNanos reads a time of the CRI; 0 is none.
func fromNanos(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
