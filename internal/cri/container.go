package cri

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// Reasons for a container's end, as containerd gives them.
const (
	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonOOMKilled  = "OOMKilled"
	reasonStartError = "StartError"
	// ReasonUnknown says that the container ended and nobody knows how. Its
	// exit code is UnknownExitCode, which means nothing.
	ReasonUnknown = "ContainerStatusUnknown"

	// UnknownExitCode stands for an exit code that is not known.
	UnknownExitCode = -1
	// startErrorExitCode is what containerd reports if nothing was started.
	startErrorExitCode = 128
)

// container is one container. What its configuration says never changes.
type container struct {
	id        string
	sandboxID string
	config    *runtimeapi.ContainerConfig
	turn      turn // create, start, remove

	cpu   cpuRate    // what its stats were when they were last asked for
	layer layerMeter // and how much it had written

	saving  sync.Mutex // orders writes of the record's file; held for one write
	removed bool       // guarded by saving: the file is gone and stays so

	mu  sync.Mutex // guards what follows
	rec store.Container
	pid int // of the first process; 0: not known
	// starting is set while the shim is asked to start it. An exit that is
	// reported meanwhile waits in early, so that a container is seen to start
	// before it is seen to end.
	starting bool
	early    *shim.Exit
	// unsettled says that a start was tried, and that the shim can't be asked
	// whether it took effect. The record says created meanwhile.
	unsettled bool
	stopping  int           // calls under way that have sent, or are about to send, the stop signal and wait
	exited    chan struct{} // closed when the state becomes exited
}

func newContainer(rec store.Container) *container {
	c := &container{
		id: rec.ID, sandboxID: rec.SandboxID, config: rec.Config.P, turn: newTurn(),
		rec: rec, exited: make(chan struct{}),
	}
	if rec.State == store.ContainerExited {
		close(c.exited)
	}
	return c
}

func (c *container) record() store.Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rec
}

func (c *container) state() store.ContainerState { return c.record().State }

func (c *container) isUnsettled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsettled
}

func (c *container) init() (pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// changeContainer alters the record and writes it. One in the making is not
// written: what is left of it after a kill is found without (see sweep).
func (s *Service) changeContainer(c *container, alter func(*store.Container)) error {
	c.saving.Lock()
	defer c.saving.Unlock()
	c.mu.Lock()
	was := c.rec.State
	alter(&c.rec)
	rec := c.rec
	if was != store.ContainerExited && rec.State == store.ContainerExited {
		close(c.exited)
	}
	c.mu.Unlock()
	if rec.State == store.ContainerMaking || c.removed {
		return nil
	}
	return s.store.PutContainer(rec)
}

// forgetContainer removes the record, for good: an end that is noticed later does not
// write it again.
func (s *Service) forgetContainer(c *container) error {
	c.saving.Lock()
	defer c.saving.Unlock()
	c.removed = true
	if err := s.store.DeleteContainer(c.id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, c.id)
	return nil
}

func (c *container) status() *runtimeapi.ContainerStatus {
	rec := c.record()
	st := &runtimeapi.ContainerStatus{
		Id:          rec.ID,
		Metadata:    c.config.GetMetadata(),
		State:       c.criState(rec.State),
		CreatedAt:   rec.CreatedAt.UnixNano(),
		Image:       proto.CloneOf(c.config.GetImage()),
		ImageRef:    rec.ImageRef,
		ImageId:     rec.ImageID,
		Labels:      c.config.GetLabels(),
		Annotations: c.config.GetAnnotations(),
		Mounts:      mountStatus(c.config.GetMounts(), rec.VolumeImages),
		LogPath:     rec.LogPath,
		Resources:   &runtimeapi.ContainerResources{Linux: rec.Resources.P},
		User:        criUser(rec),
		StopSignal:  criStopSignal(c.config.GetStopSignal(), rec.StopSignal),
	}
	st.Image.Image = rec.Image
	if rec.State == store.ContainerRunning || rec.State == store.ContainerExited {
		st.StartedAt = nanos(rec.StartedAt)
	}
	if rec.State == store.ContainerExited {
		st.FinishedAt = nanos(rec.FinishedAt)
		st.ExitCode = rec.ExitCode
		st.Reason = exitReason(rec)
		st.Message = rec.Message
	}
	return st
}

func exitReason(rec store.Container) string {
	switch {
	case rec.Reason != "":
		return rec.Reason
	case rec.ExitCode == 0:
		return reasonCompleted
	default:
		return reasonError
	}
}

// criState is the state for the CRI: nobody may run anew what may have run.
func (c *container) criState(state store.ContainerState) runtimeapi.ContainerState {
	if state == store.ContainerCreated && c.isUnsettled() {
		return runtimeapi.ContainerState_CONTAINER_UNKNOWN
	}
	return criContainerState(state)
}

func criContainerState(state store.ContainerState) runtimeapi.ContainerState {
	switch state {
	case store.ContainerMaking, store.ContainerCreated:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case store.ContainerRunning:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	case store.ContainerExited:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

func criUser(rec store.Container) *runtimeapi.ContainerUser {
	u := &runtimeapi.LinuxContainerUser{Uid: int64(rec.UID), Gid: int64(rec.GID)}
	for _, g := range rec.Groups {
		u.SupplementalGroups = append(u.SupplementalGroups, int64(g))
	}
	return &runtimeapi.ContainerUser{Linux: u}
}

// nanos is a time as the CRI writes it; 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// mountStatus is what was asked for, with the ids of the images among it.
func mountStatus(mounts []*runtimeapi.Mount, images map[string]string) []*runtimeapi.Mount {
	if len(images) == 0 {
		return mounts
	}
	mounts = slices.Clone(mounts)
	for i, m := range mounts {
		if id := images[m.GetContainerPath()]; id != "" {
			mounts[i] = proto.CloneOf(m)
			mounts[i].Image.ImageRef = id
		}
	}
	return mounts
}
