package lifecycle

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// ActionKind says what an Action does.
type ActionKind string

// The kinds of actions. Each must be safe to repeat and to cancel.
const (
	// PrepareVolumes mounts all volumes of the pod, makes its folder and cgroup.
	PrepareVolumes ActionKind = "PrepareVolumes"
	// CreateSandbox makes sandbox number Attempt. An older half-made sandbox of
	// the same attempt is removed first by the runtime.
	CreateSandbox ActionKind = "CreateSandbox"
	// PullImage makes the image of Container present according to its pull
	// policy. Its result holds the reference to start from.
	PullImage ActionKind = "PullImage"
	// StartContainer creates and starts attempt number Attempt of Container in
	// sandbox SandboxID from image ImageRef.
	StartContainer ActionKind = "StartContainer"
	// RunPostStart runs the postStart hook in container ContainerID.
	RunPostStart ActionKind = "RunPostStart"
	// RunPreStop runs the preStop hook in container ContainerID. It is wanted no
	// longer than the grace period lasts.
	RunPreStop ActionKind = "RunPreStop"
	// StopContainer sends the stop signal to ContainerID, and kills it at Until.
	// A second StopContainer with an earlier Until sends no second signal.
	StopContainer ActionKind = "StopContainer"
	// RemoveContainer removes the dead container ContainerID.
	RemoveContainer ActionKind = "RemoveContainer"
	// StopSandbox ends sandbox SandboxID: network, namespaces.
	StopSandbox ActionKind = "StopSandbox"
	// RemoveSandbox removes the stopped sandbox SandboxID.
	RemoveSandbox ActionKind = "RemoveSandbox"
	// RemovePod unmounts the volumes and removes the pod's folder and cgroup.
	RemovePod ActionKind = "RemovePod"
)

// Action is one piece of work that should be under way.
type Action struct {
	Kind        ActionKind
	Container   string // name, where the kind concerns one container
	ContainerID string
	SandboxID   string
	Attempt     int
	// Image is the image that PullImage is to make present, as the spec names it.
	Image    string
	ImageRef string
	// Until is when StopContainer kills; for RunPreStop, when it will be cut off.
	Until time.Time
	// Why is for logs and events, for example "Container app failed liveness
	// probe, will be restarted". It is no part of the key.
	Why string
}

// Key is the identity of an action: equal keys are the same work.
type Key struct {
	Kind      ActionKind
	Container string
	ID        string // of the container or sandbox; PullImage: the image
	Attempt   int
	Until     int64 // StopContainer: Unix nanoseconds; 0: none
}

// Key returns the identity of the action.
func (a Action) Key() Key {
	k := Key{Kind: a.Kind, Container: a.Container, Attempt: a.Attempt}
	switch a.Kind {
	case StopContainer:
		k.ID = a.ContainerID
		k.Until = a.Until.UnixNano()
	case RunPostStart, RunPreStop, RemoveContainer:
		k.ID = a.ContainerID
	case StopSandbox, RemoveSandbox, StartContainer:
		k.ID = a.SandboxID
	case PullImage:
		k.ID = a.Image
	case PrepareVolumes, CreateSandbox, RemovePod:
	}
	return k
}

// Compare orders keys, in no telling way.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Container, o.Container), cmp.Compare(k.Attempt, o.Attempt),
		cmp.Compare(k.ID, o.ID), cmp.Compare(k.Until, o.Until))
}

// String prints the key as logs and scenarios show it: "StartContainer app#1".
func (k Key) String() string {
	var b strings.Builder
	b.WriteString(string(k.Kind))
	switch {
	case k.Container != "":
		fmt.Fprintf(&b, " %s#%d", k.Container, k.Attempt)
	case k.Kind == CreateSandbox:
		fmt.Fprintf(&b, " #%d", k.Attempt)
	case k.ID != "":
		fmt.Fprintf(&b, " %s", k.ID)
	}
	return b.String()
}
