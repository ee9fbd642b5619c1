package lifecycle

import "time"

// Observed is what the runtime was seen to hold of a pod. The order of its
// lists means nothing.
type Observed struct {
	// At is when the runtime was asked; what it says is at least this new.
	// Zero: never asked.
	At         time.Time
	Sandboxes  []Sandbox
	Containers []Container
	// Leftovers says that something else of the pod is still on the node:
	// volumes, its folder or its cgroup.
	Leftovers bool
}

// Sandbox is one sandbox of the pod.
type Sandbox struct {
	ID      string
	Attempt int
	// Ready is CRI's SANDBOX_READY.
	Ready     bool
	CreatedAt time.Time
	// IPs are its addresses, the primary one first; empty on the host network.
	IPs []string
	// HostNetwork says that it has no network namespace of its own.
	HostNetwork bool
}

// ContainerState is CRI's state of a container.
type ContainerState string

// The states of a container.
const (
	ContainerCreated ContainerState = "Created"
	ContainerRunning ContainerState = "Running"
	ContainerExited  ContainerState = "Exited"
	ContainerUnknown ContainerState = "Unknown"
)

// Container is one container of the pod, of any kind, alive or dead.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	// Attempt counts the creations of this name in this pod from 0.
	Attempt int
	// Hash is ContainerHash of the spec it was made from.
	Hash       string
	State      ContainerState
	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	ExitCode   int32
	// ExitUnknown says that it ended and nobody knows how; ExitCode is then
	// meaningless.
	ExitUnknown bool
	// Signal is what ended it, where the runtime tells; CRI has no field for it,
	// and a code above 128 alone is no proof of one. 0: none, or not known.
	Signal int32
	// Reason and Message are the runtime's words for the end; the message
	// already holds the termination message of an ended container.
	Reason  string
	Message string
	// Image and ImageID are as in the API's container status.
	Image   string
	ImageID string
	User    *User
}

// User is who a container's first process runs as, where the runtime tells.
type User struct {
	UID, GID           int64
	SupplementalGroups []int64
}
