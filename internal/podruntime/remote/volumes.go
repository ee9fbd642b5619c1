package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/format"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podconfig"
	"github.com/berth-run/berth/internal/volume"
)

// mountedVolumes remembers where the volumes of pods are. Safe for concurrent
// use.
type mountedVolumes struct {
	mu   sync.Mutex
	pods map[types.UID]map[string]podconfig.Volume
}

func newMountedVolumes() *mountedVolumes {
	return &mountedVolumes{pods: make(map[types.UID]map[string]podconfig.Volume)}
}

func (m *mountedVolumes) get(uid types.UID) (map[string]podconfig.Volume, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.pods[uid]
	return v, ok
}

func (m *mountedVolumes) set(uid types.UID, v map[string]podconfig.Volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v == nil {
		delete(m.pods, uid)
	} else {
		m.pods[uid] = v
	}
}

// prepareVolumes makes the pod's folder, volumes and cgroup.
func (r *Runtime) prepareVolumes(ctx context.Context, pod *corev1.Pod) error {
	if err := os.MkdirAll(r.cfg.Volumes.Pod(pod.UID), 0o750); err != nil {
		return fmt.Errorf("cannot make folder of pod: %w", err)
	}
	if r.cfg.Cgroups != nil {
		if err := r.cfg.Cgroups.Make(ctx, pod); err != nil {
			return fmt.Errorf("cannot make cgroup of pod: %w", err)
		}
	}
	_, err := r.mountVolumes(ctx, pod)
	return err
}

// mountVolumes prepares the pod's volumes and pulls its image volumes.
func (r *Runtime) mountVolumes(ctx context.Context, pod *corev1.Pod) (map[string]podconfig.Volume, error) {
	mounted, err := r.cfg.Volumes.Prepare(ctx, pod)
	if err != nil {
		return nil, err
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image == nil {
			continue
		}
		ref, err := r.pull(ctx, pod, "", v.Image.Reference, v.Image.PullPolicy)
		if err != nil {
			return nil, volumeFailed(v.Name, err)
		}
		m := mounted[v.Name]
		m.Image = ref
		mounted[v.Name] = m
	}
	r.mount.set(pod.UID, mounted)
	return mounted, nil
}

// volumeFailed says which volume err is about. Of a lifecycle.Failed only the
// message is told, so the name goes into that.
func volumeFailed(name string, err error) error {
	var failed *lifecycle.Failed
	if errors.As(err, &failed) {
		return &lifecycle.Failed{Reason: failed.Reason, Message: fmt.Sprintf("cannot prepare volume %q: %s", name, failed.Message)}
	}
	return fmt.Errorf("cannot prepare volume %q: %w", name, err)
}

// volumesOf says where the pod's volumes are. They are looked up again after a
// restart of the agent, and if somebody has removed an image among them.
func (r *Runtime) volumesOf(ctx context.Context, pod *corev1.Pod) (map[string]podconfig.Volume, error) {
	mounted, ok := r.mount.get(pod.UID)
	if !ok {
		return r.mountVolumes(ctx, pod)
	}
	for _, v := range mounted {
		if v.Image == "" {
			continue
		}
		present, err := r.present(ctx, &runtimeapi.ImageSpec{Image: v.Image})
		if err != nil {
			return nil, err
		}
		if present == nil {
			return r.mountVolumes(ctx, pod)
		}
	}
	return mounted, nil
}

// removePod removes the pod's volumes, folder and cgroup, and the logs of a
// deleted pod: nobody can ask for them by its name any more.
func (r *Runtime) removePod(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	// The folder goes last: while it is there, the pod counts as not gone.
	if r.cfg.Cgroups != nil {
		if err := r.cfg.Cgroups.Remove(ctx, pod.UID); err != nil {
			return fmt.Errorf("cannot remove cgroup of pod %s: %w", format.Pod(pod), err)
		}
	}
	if pod.DeletionTimestamp != nil {
		for _, dir := range r.logFolders(pod) {
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("cannot remove logs of pod %s: %w", format.Pod(pod), err)
			}
		}
	}
	if err := r.cfg.Volumes.RemovePod(ctx, pod.UID); err != nil {
		return err
	}
	r.mount.set(pod.UID, nil)
	return nil
}

// logFolders lists the folders of the pod's logs that exist: of an orphan only
// the uid may be known.
func (r *Runtime) logFolders(pod *corev1.Pod) []string {
	root := r.cfg.Facts(pod).LogRoot
	dir := podconfig.LogDirectory(pod, root)
	if pod.Name == "" {
		found, err := filepath.Glob(filepath.Join(root, "*_"+string(pod.UID)))
		if err != nil {
			return nil // a uid that is no uid
		}
		return found
	}
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return []string{dir}
}

// leftovers says whether more of the pod than sandboxes and containers is on the
// node. The logs of a pod count once it is deleted.
func (r *Runtime) leftovers(pod *corev1.Pod) bool {
	return r.cfg.Volumes.Exists(pod.UID) || pod.DeletionTimestamp != nil && len(r.logFolders(pod)) > 0
}

// subPaths resolves the parts of volumes that the container mounts.
func (r *Runtime) subPaths(ctx context.Context, pod *corev1.Pod, c *corev1.Container, f podconfig.ContainerFacts) (map[int]string, error) {
	wanted, err := podconfig.SubPaths(pod, c, f)
	if err != nil {
		return nil, err
	}
	resolved := make(map[int]string, len(wanted))
	for index, path := range wanted {
		v := f.Volumes[c.VolumeMounts[index].Name]
		if v.Image != "" || v.HostPath == "" {
			continue
		}
		resolved[index], err = r.cfg.Volumes.SubPath(ctx, pod.UID, volume.SubPath{
			Volume: c.VolumeMounts[index].Name, HostPath: v.HostPath, Container: c.Name, Index: index, Path: path,
		})
		if err != nil {
			return nil, &lifecycle.Failed{Reason: lifecycle.ReasonCreateContainerConfigError, Message: err.Error()}
		}
	}
	return resolved, nil
}

// writeHosts makes the pod's /etc/hosts hold what it should. The file is
// changed in place: containers have it mounted.
func (r *Runtime) writeHosts(pod *corev1.Pod, ips []string, f podconfig.Facts) (path string, err error) {
	content, err := podconfig.HostsFile(pod, ips, f)
	if err != nil {
		return "", err
	}
	path = r.cfg.Volumes.HostsFile(pod.UID)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
		return path, nil
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return "", fmt.Errorf("cannot write hosts file: %w", err)
	}
	return path, os.Chmod(path, 0o644) // the umask does not count
}
