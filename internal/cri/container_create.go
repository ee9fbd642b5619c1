package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/ocispec"
	"github.com/berth-run/berth/internal/cri/store"
)

// CreateContainer makes everything a container needs and runs nothing yet. If it
// fails, nothing is left of it.
func (s *Service) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	sb, err := s.readySandbox(sandboxID)
	if err != nil {
		return "", err
	}
	if err := validateContainer(config); err != nil {
		return "", err
	}
	handler := sb.record().Handler
	h, err := s.handler(handler)
	if err != nil {
		return "", err
	}
	if err := h.fits(handler, config); err != nil {
		return "", err
	}
	config = proto.CloneOf(config)
	img, err := s.cfg.Images.Get(ctx, config.GetImage().GetImage())
	if err != nil {
		return "", imageError(config.GetImage().GetImage(), err)
	}
	rec := store.Container{
		ID:         newID(),
		SandboxID:  sb.id,
		State:      store.ContainerMaking,
		Image:      config.GetImage().GetImage(),
		ImageRef:   img.ID,
		ImageID:    img.ID,
		StopSignal: img.Spec.Config.StopSignal,
		CreatedAt:  time.Now(),
	}
	rec.Config.P, rec.Resources.P = config, config.GetLinux().GetResources()
	if len(img.Tags) > 0 {
		rec.Image = img.Tags[0]
	}
	if len(img.Digests) > 0 {
		rec.ImageRef = img.Digests[0]
	}
	if dir, log := sb.config.GetLogDirectory(), config.GetLogPath(); dir != "" && log != "" {
		rec.LogPath = filepath.Join(dir, log)
	}
	c := newContainer(rec)

	name := containerName(sb.id, config.GetMetadata())
	if err := s.reserve(name, c.id); err != nil {
		return "", err
	}
	release, err := c.turn.take(ctx)
	if err != nil {
		s.unreserve(name, c.id)
		return "", err
	}
	defer release()
	if err := s.do(ctx, s.containerSteps(&creation{sandbox: sb, handler: h, container: c, image: img})); err != nil {
		s.unreserve(name, c.id)
		return "", fmt.Errorf("cannot create container %q: %w", config.GetMetadata().GetName(), err)
	}
	s.emit(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, c.id, sb.id)
	return c.id, nil
}

func validateContainer(config *runtimeapi.ContainerConfig) error {
	if config.GetMetadata().GetName() == "" {
		return coded(codes.InvalidArgument, "cannot create container: its metadata needs a name")
	}
	if config.GetImage().GetImage() == "" {
		return coded(codes.InvalidArgument, "cannot create container %q: it names no image", config.GetMetadata().GetName())
	}
	for _, m := range config.GetMounts() {
		if m.GetImage().GetImage() != "" && !m.GetReadonly() {
			return coded(codes.InvalidArgument, "cannot create container %q: the image mounted at %s must be read-only", config.GetMetadata().GetName(), m.GetContainerPath())
		}
	}
	if len(config.GetCDIDevices()) > 0 {
		return coded(codes.InvalidArgument, "cannot create container %q: CDI devices are not supported", config.GetMetadata().GetName())
	}
	if unknown := ocispec.Unknown(config); len(unknown) > 0 {
		return coded(codes.InvalidArgument, "cannot create container %q: no kernel has the capabilities %s; see capabilities(7) for those there are",
			config.GetMetadata().GetName(), strings.Join(unknown, ", "))
	}
	return nil
}

// creation is a container in the making. For taking one back, only container is
// needed, and of it only the id.
type creation struct {
	sandbox   *sandbox
	handler   handler
	container *container
	image     imagestore.Image

	// What earlier steps hand to later ones.
	rootfs   rootfs
	volumes  []imageVolume
	declared []ocispec.Mount
}

func (s *Service) containerSteps(n *creation) []step {
	c := n.container
	return []step{
		{
			name: "remember the container",
			do: func(context.Context) error {
				s.mu.Lock()
				s.containers[c.id] = c
				s.mu.Unlock()
				return nil
			},
			undo: func(context.Context) error { return s.forgetContainer(c) },
		},
		{
			name: "make the container's folder",
			do: func(context.Context) error {
				return os.MkdirAll(s.rootfsDir(c.id), 0o755)
			},
			undo: func(context.Context) error { return s.removeBundle(c.id) },
		},
		{
			name: "make the container's file system",
			do: func(ctx context.Context) (err error) {
				n.rootfs.mounts, err = s.cfg.Images.Prepare(ctx, c.id, n.image, snapshotOptions(n.sandbox))
				return err
			},
			undo: func(ctx context.Context) error { return s.cfg.Images.Release(ctx, c.id) },
		},
		{
			name: "mount the container's file system",
			do:   func(context.Context) error { return s.mountRootfs(n) },
			undo: func(context.Context) error { return unmount(s.rootfsDir(c.id)) },
		},
		{
			name: "mount the container's image volumes",
			do: func(ctx context.Context) error {
				if err := s.mountDeclaredVolumes(ctx, n); err != nil {
					return err
				}
				return s.mountImageVolumes(ctx, n)
			},
			undo: func(ctx context.Context) error { return s.unmountImageVolumes(ctx, c.id) },
		},
		{
			name: "write the container's specification",
			do:   func(ctx context.Context) error { return s.specify(ctx, n) },
		},
		{
			name: "make the container's log folder",
			do: func(context.Context) error {
				if log := c.record().LogPath; log != "" {
					return os.MkdirAll(filepath.Dir(log), 0o755)
				}
				return nil
			},
		},
		{
			name: "record that the container is created",
			do: func(context.Context) error {
				return s.changeContainer(c, func(r *store.Container) { r.State = store.ContainerCreated })
			},
			// What is left of a container in the shim, whoever made it.
			undo: func(ctx context.Context) error { return s.cfg.Shim.Delete(ctx, c.id) },
		},
		{
			// Now that it can be seen: a sandbox that was stopped meanwhile has
			// not seen it.
			name: "leave the container in its sandbox",
			do: func(context.Context) error {
				_, err := s.readySandbox(c.sandboxID)
				return err
			},
		},
	}
}

// specify resolves everything the specification depends on, renders and writes
// it.
func (s *Service) specify(ctx context.Context, n *creation) error {
	c, sb := n.container, n.sandbox
	user, err := resolveUser(ctx, c.config, n.image.Spec.Config.User, n.rootfs)
	if err != nil {
		return err
	}
	in := ocispec.Input{
		ID:           c.id,
		Config:       c.config,
		Sandbox:      sb.config,
		Image:        &n.image.Spec.Config,
		User:         user,
		CgroupParent: sb.config.GetLinux().GetCgroupParent(),
		Host:         s.host,
	}
	if in.Hostname, err = hostname(sb.config); err != nil {
		return err
	}
	if in.Namespaces, err = s.containerNamespaces(c, sb); err != nil {
		return err
	}
	if in.Mounts, err = s.resolveMounts(n); err != nil {
		return err
	}
	if in.Devices, err = resolveDevices(c.config); err != nil {
		return err
	}
	if in.Seccomp, err = readSeccomp(c.config); err != nil {
		return err
	}
	spec, err := ocispec.Build(in)
	if err != nil {
		return err
	}
	if n.handler.version != "" {
		spec.Version = n.handler.version
	}
	s.warnOfLimits(c, spec)
	if err := s.changeContainer(c, func(r *store.Container) {
		r.UID, r.GID, r.Groups = user.UID, user.GID, slices.Clone(user.Groups)
	}); err != nil {
		return err
	}
	return writeSpec(s.containerDir(c.id), spec)
}

// warnOfLimits says once what this machine doesn't let berth give.
func (s *Service) warnOfLimits(c *container, spec *specs.Spec) {
	for _, name := range ocispec.Missing(c.config, s.host) {
		s.warnOnce("containers can't have a capability that berth lacks itself", "capability", name)
	}
	want := int(c.config.GetLinux().GetResources().GetOomScoreAdj())
	if got := spec.Process.OOMScoreAdj; got != nil && *got != want {
		s.warnOnce("berth lacks CAP_SYS_RESOURCE and can't lower oom_score_adj", "lowest", *got)
	}
}

// containerNamespaces adds the pid namespace to what the sandbox gives.
func (s *Service) containerNamespaces(c *container, sb *sandbox) (ocispec.Namespaces, error) {
	ns := s.namespacesOf(sb)
	opts := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if u := opts.GetUsernsOptions(); u != nil && !proto.Equal(u, sb.namespaceOptions().GetUsernsOptions()) {
		return ns, errors.New("the user namespace of the container is not that of its sandbox")
	}
	switch opts.GetPid() {
	case runtimeapi.NamespaceMode_NODE:
		ns.PIDMode = ocispec.HostPID
	case runtimeapi.NamespaceMode_CONTAINER:
		ns.PIDMode = ocispec.OwnPID
	case runtimeapi.NamespaceMode_POD:
		if !sb.sharesPID() {
			return ns, errors.New("the container wants the pid namespace of its sandbox, which has none: it was made with another pid mode")
		}
		ns.PIDMode, ns.PID = ocispec.JoinPID, s.pinPath(sb.id, nsPID)
	case runtimeapi.NamespaceMode_TARGET:
		target, err := s.container(opts.GetTargetId())
		if err != nil {
			return ns, fmt.Errorf("cannot join the pid namespace of another container: %w", err)
		}
		if target.sandboxID != sb.id {
			return ns, fmt.Errorf("cannot join the pid namespace of container %s: it is in another sandbox", target.id)
		}
		if target.state() != store.ContainerRunning || target.init() == 0 {
			return ns, fmt.Errorf("cannot join the pid namespace of container %s: it is not running", target.id)
		}
		ns.PIDMode, ns.PID = ocispec.JoinPID, fmt.Sprintf("/proc/%d/ns/pid", target.init())
	default:
		return ns, fmt.Errorf("unknown pid namespace mode %v", opts.GetPid())
	}
	return ns, nil
}

// specFile is where the OCI runtime looks for the specification in a bundle.
const specFile = "config.json"

func writeSpec(bundle string, spec *specs.Spec) error {
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	// Renamed into place: an update may be killed, and commands read it meanwhile.
	path := filepath.Join(bundle, specFile)
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func readSpec(bundle string) (*specs.Spec, error) {
	raw, err := os.ReadFile(filepath.Join(bundle, specFile))
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{}
	return spec, json.Unmarshal(raw, spec)
}

// imageError tells a missing image from other trouble.
func imageError(ref string, err error) error {
	if errors.Is(err, imagestore.ErrNotFound) {
		return coded(codes.NotFound, "cannot find image %q: pull it first", ref)
	}
	return fmt.Errorf("cannot look up image %q: %w", ref, err)
}

func snapshotOptions(sb *sandbox) imagestore.SnapshotOptions {
	uids, gids, _ := sb.userNamespace()
	return imagestore.SnapshotOptions{UIDMap: ociMappings(uids), GIDMap: ociMappings(gids)}
}

func ociMappings(list []*runtimeapi.IDMapping) []specs.LinuxIDMapping {
	var out []specs.LinuxIDMapping
	for _, m := range list {
		out = append(out, specs.LinuxIDMapping{ContainerID: m.GetContainerId(), HostID: m.GetHostId(), Size: m.GetLength()})
	}
	return out
}

// idMapping renders the one mapping a sandbox may have for the kernel.
func idMapping(list []*runtimeapi.IDMapping) string {
	m := list[0]
	return fmt.Sprintf("%d:%d:%d", m.GetContainerId(), m.GetHostId(), m.GetLength())
}
