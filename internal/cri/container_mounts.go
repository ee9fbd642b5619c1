package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/moby/sys/mountinfo"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/ocispec"
	"github.com/berth-run/berth/internal/cri/store"
)

func (s *Service) rootfsDir(id string) string {
	return filepath.Join(s.containerDir(id), ocispec.RootfsDir)
}
func (s *Service) volumesDir(id string) string { return filepath.Join(s.containerDir(id), "volumes") }

// mountRootfs mounts the root file system here only if the kernel alone can't:
// id-mapped layers need containerd's help. Otherwise it is left to the shim.
func (s *Service) mountRootfs(n *creation) error {
	if needsMounting(n.rootfs.mounts) {
		n.rootfs.mountedAt = s.rootfsDir(n.container.id)
		return mount.All(n.rootfs.mounts, n.rootfs.mountedAt)
	}
	return s.changeContainer(n.container, func(r *store.Container) {
		for _, m := range n.rootfs.mounts {
			r.Rootfs = append(r.Rootfs, store.Mount{Type: m.Type, Source: m.Source, Options: m.Options})
		}
	})
}

func needsMounting(list []mount.Mount) bool {
	return slices.ContainsFunc(list, func(m mount.Mount) bool {
		return slices.ContainsFunc(m.Options, func(o string) bool {
			return strings.HasPrefix(o, "uidmap=") || strings.HasPrefix(o, "gidmap=") || strings.HasPrefix(o, "loop")
		})
	})
}

// imageVolume is an image whose files a container sees read-only.
type imageVolume struct {
	mount *runtimeapi.Mount // of the container's configuration
	path  string            // where it is mounted on the host
}

func volumeKey(id, name string) string { return id + "-volume-" + name }

// mountImageVolumes mounts the images among the container's mounts. They must
// have been pulled.
func (s *Service) mountImageVolumes(ctx context.Context, n *creation) error {
	ids := make(map[string]string)
	for i, m := range n.container.config.GetMounts() {
		ref := m.GetImage().GetImage()
		if ref == "" {
			continue
		}
		img, err := s.cfg.Images.Get(ctx, ref)
		if err != nil {
			return imageError(ref, err)
		}
		// The folder comes first: unmounting goes by what it finds.
		at := filepath.Join(s.volumesDir(n.container.id), fmt.Sprint(i))
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		layers, err := s.cfg.Images.View(ctx, volumeKey(n.container.id, fmt.Sprint(i)), img, imagestore.SnapshotOptions{
			UIDMap: ociMappings(m.GetUidMappings()), GIDMap: ociMappings(m.GetGidMappings()),
		})
		if err != nil {
			return err
		}
		if err := mount.All(layers, at); err != nil {
			return fmt.Errorf("cannot mount image %q: %w", ref, err)
		}
		n.volumes = append(n.volumes, imageVolume{mount: m, path: at})
		ids[m.GetContainerPath()] = img.ID
	}
	return s.changeContainer(n.container, func(r *store.Container) { r.VolumeImages = ids })
}

// declaredVolumes is the folder, and part of the snapshot's key, of the volumes
// that an image declares.
const declaredVolumes = "declared"

// mountDeclaredVolumes keeps the paths that the image declares as volumes
// writable in a container with a read-only root, as other runtimes do: they are
// taken from a second, writable, file system of the same image. With a writable
// root they are folders like others.
func (s *Service) mountDeclaredVolumes(ctx context.Context, n *creation) error {
	declared := n.image.Spec.Config.Volumes
	if len(declared) == 0 || !n.container.config.GetLinux().GetSecurityContext().GetReadonlyRootfs() {
		return nil
	}
	at := filepath.Join(s.volumesDir(n.container.id), declaredVolumes)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	layers, err := s.cfg.Images.Prepare(ctx, volumeKey(n.container.id, declaredVolumes), n.image, snapshotOptions(n.sandbox))
	if err != nil {
		return err
	}
	if err := mount.All(layers, at); err != nil {
		return err
	}
	for _, dest := range slices.Sorted(maps.Keys(declared)) {
		source, err := securejoin.SecureJoin(at, dest)
		if err != nil {
			return err
		}
		if _, err := os.Stat(source); errors.Is(err, fs.ErrNotExist) {
			if err := os.MkdirAll(source, 0o755); err != nil {
				return err
			}
			if err := os.Chown(source, n.sandbox.rootOnHost(), n.sandbox.rootOnHost()); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		n.declared = append(n.declared, ocispec.Mount{Source: source, Destination: path.Join("/", dest)})
	}
	return nil
}

// unmountImageVolumes looks on disk for what to unmount, and thereby works
// without the container's configuration.
func (s *Service) unmountImageVolumes(ctx context.Context, id string) error {
	entries, err := os.ReadDir(s.volumesDir(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs,
			unmount(filepath.Join(s.volumesDir(id), e.Name())),
			s.cfg.Images.Release(ctx, volumeKey(id, e.Name())))
	}
	return errors.Join(errs...)
}

// resolveMounts turns the container's mounts into binds of paths that exist,
// and adds the image's volumes and the sandbox's files where the container has none of its own.
func (s *Service) resolveMounts(n *creation) ([]ocispec.Mount, error) {
	var out []ocispec.Mount
	for _, m := range n.container.config.GetMounts() {
		r, err := s.resolveMount(n, m)
		if err != nil {
			return nil, fmt.Errorf("cannot mount %s: %w", m.GetContainerPath(), err)
		}
		out = append(out, r)
	}
	readOnly := n.container.config.GetLinux().GetSecurityContext().GetReadonlyRootfs()
	shm := s.shmPath(n.sandbox.id)
	if n.sandbox.hostIPC() {
		shm = hostShm
	}
	for _, m := range append(n.declared, []ocispec.Mount{
		{Source: s.hostnamePath(n.sandbox.id), Destination: "/etc/hostname", ReadOnly: readOnly},
		{Source: s.hostsPath(n.sandbox.id), Destination: "/etc/hosts", ReadOnly: readOnly},
		{Source: s.resolvConfPath(n.sandbox.id), Destination: "/etc/resolv.conf", ReadOnly: readOnly},
		{Source: shm, Destination: "/dev/shm"},
	}...) {
		if !slices.ContainsFunc(out, func(o ocispec.Mount) bool { return path.Clean(o.Destination) == m.Destination }) {
			out = append(out, m)
		}
	}
	return out, nil
}

func (s *Service) resolveMount(n *creation, m *runtimeapi.Mount) (ocispec.Mount, error) {
	out := ocispec.Mount{
		Destination:       m.GetContainerPath(),
		ReadOnly:          m.GetReadonly(),
		RecursiveReadOnly: m.GetRecursiveReadOnly(),
		Propagation:       m.GetPropagation(),
		Options:           m.GetMountOptions(),
		UIDs:              ociMappings(m.GetUidMappings()),
		GIDs:              ociMappings(m.GetGidMappings()),
	}
	if m.GetContainerPath() == "" {
		return out, errors.New("it has no path in the container")
	}
	if i := slices.IndexFunc(n.volumes, func(v imageVolume) bool { return v.mount == m }); i >= 0 {
		return resolveImageVolume(out, n.volumes[i])
	}
	if m.GetHostPath() == "" {
		return out, errors.New("it has neither a path on the host nor an image")
	}
	source := m.GetHostPath()
	if _, err := os.Stat(source); errors.Is(err, fs.ErrNotExist) {
		// As other runtimes do; whoever minds checks before.
		err = os.MkdirAll(source, 0o755)
		if err != nil {
			return out, err
		}
	} else if err != nil {
		return out, err
	}
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return out, err
	}
	out.Source = source
	return out, checkPropagation(source, m.GetPropagation())
}

// resolveImageVolume binds the image, or a path in it, read-only. Its id
// mapping is that of the snapshot already.
func resolveImageVolume(out ocispec.Mount, v imageVolume) (ocispec.Mount, error) {
	out.ReadOnly, out.UIDs, out.GIDs = true, nil, nil
	out.Source = v.path
	if sub := v.mount.GetImageSubPath(); sub != "" {
		p, err := securejoin.SecureJoin(v.path, sub)
		if err != nil {
			return out, err
		}
		if _, err := os.Stat(p); err != nil {
			return out, fmt.Errorf("the image has no path %q: %w", sub, err)
		}
		out.Source = p
	}
	return out, nil
}

// checkPropagation makes sure that the mount below source can propagate as
// asked: the kernel would silently not do it.
func checkPropagation(source string, p runtimeapi.MountPropagation) error {
	if p == runtimeapi.MountPropagation_PROPAGATION_PRIVATE {
		return nil
	}
	infos, err := mountinfo.GetMounts(mountinfo.ParentsFilter(source))
	if err != nil {
		return err
	}
	var holder *mountinfo.Info
	for _, info := range infos {
		if holder == nil || len(info.Mountpoint) >= len(holder.Mountpoint) {
			holder = info
		}
	}
	if holder == nil {
		return fmt.Errorf("no mount found that holds %s", source)
	}
	if strings.Contains(holder.Optional, "shared:") {
		return nil
	}
	if p == runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER && strings.Contains(holder.Optional, "master:") {
		return nil
	}
	return fmt.Errorf("path %s is on mount %s, which is not a shared mount", source, holder.Mountpoint)
}

// removeBundle removes a container's folder, but never through a mount: the
// mount points in it must be empty by now.
func (s *Service) removeBundle(id string) error {
	points, err := filepath.Glob(filepath.Join(s.volumesDir(id), "*"))
	if err != nil {
		return err
	}
	for _, p := range append(points, s.rootfsDir(id)) {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(s.containerDir(id))
}
