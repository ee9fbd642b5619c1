package store

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox is the lasting state of a pod sandbox.
type Sandbox struct {
	ID        string                                                             `json:"id"`
	Config    Message[runtimeapi.PodSandboxConfig, *runtimeapi.PodSandboxConfig] `json:"config"`
	Handler   string                                                             `json:"handler,omitempty"`
	CreatedAt time.Time                                                          `json:"createdAt"`
	State     SandboxState                                                       `json:"state"`
	StoppedAt time.Time                                                          `json:"stoppedAt,omitzero"` // when it became not ready
	IPs       []string                                                           `json:"ips,omitempty"`      // primary first; empty with the host's network
}

func (s Sandbox) whole(id string) bool { return s.ID == id && s.Config.P != nil }

// SandboxState is how far a sandbox has come. It only moves down the list.
type SandboxState string

const (
	SandboxMaking   SandboxState = "making" // not yet returned to the caller; not written
	SandboxReady    SandboxState = "ready"
	SandboxNotReady SandboxState = "notready"
)

// Container is the lasting state of a container.
type Container struct {
	ID        string                                                           `json:"id"`
	SandboxID string                                                           `json:"sandbox"`
	Config    Message[runtimeapi.ContainerConfig, *runtimeapi.ContainerConfig] `json:"config"`
	State     ContainerState                                                   `json:"state"`

	Image      string `json:"image"`    // name shown to people: tag, else what was asked for
	ImageRef   string `json:"imageRef"` // by digest, else the image's id
	ImageID    string `json:"imageID"`
	StopSignal string `json:"stopSignal,omitempty"` // the image's, such as SIGQUIT
	// Rootfs is what the shim mounts as the root; empty: it is mounted already.
	Rootfs []Mount `json:"rootfs,omitempty"`
	// VolumeImages are the ids of the images that are mounted, by path in the container.
	VolumeImages map[string]string `json:"volumeImages,omitempty"`

	LogPath string   `json:"logPath,omitempty"` // absolute
	UID     uint32   `json:"uid"`
	GID     uint32   `json:"gid"`
	Groups  []uint32 `json:"groups,omitempty"`

	// Resources in force; they differ from Config's after an update.
	Resources Message[runtimeapi.LinuxContainerResources, *runtimeapi.LinuxContainerResources] `json:"resources"`

	CreatedAt  time.Time `json:"createdAt"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	ExitCode   int32     `json:"exitCode,omitempty"`
	Signal     int32     `json:"signal,omitempty"` // that ended it; 0: none
	Reason     string    `json:"reason,omitempty"` // set by whoever ended it; "": by exit code
	Message    string    `json:"message,omitempty"`
}

func (c Container) whole(id string) bool { return c.ID == id && c.Config.P != nil }

// ContainerState is how far a container has come. It only moves down the list.
type ContainerState string

const (
	ContainerMaking  ContainerState = "making"  // not yet returned to the caller; not written
	ContainerCreated ContainerState = "created" // never started
	ContainerRunning ContainerState = "running"
	ContainerExited  ContainerState = "exited"
)

// Mount is one mount, with the fields of mount(8).
type Mount struct {
	Type    string   `json:"type"`
	Source  string   `json:"source"`
	Options []string `json:"options,omitempty"`
}

// Message holds a protobuf message and writes it as protobuf JSON.
type Message[T any, P interface {
	*T
	proto.Message
}] struct{ P P }

// MarshalJSON writes null for no message.
func (m Message[T, P]) MarshalJSON() ([]byte, error) {
	if m.P == nil {
		return []byte("null"), nil
	}
	return protojson.Marshal(m.P)
}

// UnmarshalJSON accepts fields of newer versions and drops them.
func (m *Message[T, P]) UnmarshalJSON(raw []byte) error {
	m.P = nil
	if string(raw) == "null" {
		return nil
	}
	m.P = new(T)
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, m.P)
}

var _ json.Unmarshaler = (*Message[runtimeapi.ContainerConfig, *runtimeapi.ContainerConfig])(nil)
