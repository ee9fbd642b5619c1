package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/ocispec"
	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

const (
	// pauseTarget is the shim's binary inside the pause container.
	pauseTarget = "/berth-shim"
	// pauseOOMScore is what the kubelet's runtimes give sandboxes.
	pauseOOMScore = -998
	pauseShares   = 2
)

// pauseID is the shim's id of a sandbox's pause container.
func pauseID(sandboxID string) string { return sandboxID + "-pause" }

// startPause starts the process that holds a shared pid namespace and reaps its
// orphans, and pins the namespace. It runs from an empty root with nothing but
// the shim's binary.
func (s *Service) startPause(ctx context.Context, sb *sandbox) error {
	if !sb.sharesPID() {
		return nil
	}
	if s.cfg.ShimBinary == "" {
		return errors.New("a shared pid namespace needs cri.Config.ShimBinary")
	}
	bundle := s.pauseDir(sb.id)
	rootfs := filepath.Join(bundle, ocispec.RootfsDir)
	if err := os.MkdirAll(rootfs, 0o755); err != nil {
		return err
	}
	// Root of the sandbox makes the mount points in it.
	if err := os.Chown(rootfs, sb.rootOnHost(), sb.rootOnHost()); err != nil {
		return err
	}
	spec, err := ocispec.Build(s.pauseInput(sb))
	if err != nil {
		return err
	}
	if err := writeSpec(bundle, spec); err != nil {
		return err
	}
	id := pauseID(sb.id)
	created, err := s.cfg.Shim.Create(ctx, shim.CreateRequest{ID: id, Bundle: bundle})
	if err != nil {
		return err
	}
	if err := pin(s.namespaceDir(sb.id), []nsKind{nsPID}, fmt.Sprintf("/proc/%d/ns", created.PID)); err != nil {
		return err
	}
	_, err = s.cfg.Shim.Start(ctx, id)
	return err
}

func (s *Service) pauseDir(id string) string { return filepath.Join(s.sandboxDir(id), "pause") }

func (s *Service) pauseInput(sb *sandbox) ocispec.Input {
	sc := sb.config.GetLinux().GetSecurityContext()
	in := ocispec.Input{
		ID: pauseID(sb.id),
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "pause"},
			Command:  []string{pauseTarget, "pause"},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{CpuShares: pauseShares, OomScoreAdj: pauseOOMScore},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					NoNewPrivs:     true,
					ReadonlyRootfs: true,
					Capabilities:   &runtimeapi.Capability{DropCapabilities: []string{"ALL"}},
					Seccomp:        sc.GetSeccomp(),
				},
			},
		},
		Sandbox:      sb.config,
		Namespaces:   s.namespacesOf(sb),
		CgroupParent: sb.config.GetLinux().GetCgroupParent(),
		Mounts:       []ocispec.Mount{{Source: s.cfg.ShimBinary, Destination: pauseTarget, ReadOnly: true}},
		Host:         s.host,
	}
	if p := sc.GetSeccomp(); p.GetProfileType() == runtimeapi.SecurityProfile_Localhost {
		in.Config.Linux.SecurityContext.Seccomp = nil // written for the pod's programs, not for ours
	}
	in.Namespaces.PIDMode = ocispec.OwnPID
	if u := sc.GetRunAsUser(); u != nil {
		in.User.UID = uint32(u.GetValue())
	}
	if g := sc.GetRunAsGroup(); g != nil {
		in.User.GID = uint32(g.GetValue())
	}
	return in
}

// namespacesOf gives what a container of the sandbox joins, without the pid
// namespace.
func (s *Service) namespacesOf(sb *sandbox) ocispec.Namespaces {
	var ns ocispec.Namespaces
	for _, k := range sb.ownNamespaces() {
		switch k {
		case nsNet:
			ns.Network = s.pinPath(sb.id, k)
		case nsUTS:
			ns.UTS = s.pinPath(sb.id, k)
		case nsIPC:
			ns.IPC = s.pinPath(sb.id, k)
		case nsUser, nsPID:
		}
	}
	if _, _, ok := sb.userNamespace(); ok {
		ns.User = s.pinPath(sb.id, nsUser)
	}
	return ns
}

// endPause kills the pause process, and with it every process in the pid
// namespace. The namespace's pin goes with the others.
func (s *Service) endPause(ctx context.Context, sb *sandbox) error {
	if sb.config != nil && !sb.sharesPID() {
		return nil
	}
	id := pauseID(sb.id)
	if err := s.cfg.Shim.Signal(ctx, id, syscall.SIGKILL, true); err != nil && !errors.Is(err, shim.ErrNotFound) {
		return err
	}
	return s.cfg.Shim.Delete(ctx, id)
}

// pauseExited marks the sandbox as not ready: its pid namespace is gone, so it
// can't take new containers.
func (s *Service) pauseExited(sb *sandbox) error {
	if sb.state() != store.SandboxReady {
		return nil
	}
	s.log.Warn("pause process ended, the sandbox can't be used any more", "id", sb.id)
	err := s.markStopped(sb)
	s.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, sb.id, sb.id)
	return err
}
