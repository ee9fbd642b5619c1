package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/format"
	"github.com/berth-run/berth/internal/podconfig"
)

// Sources is where volumes get the content of API objects from.
type Sources interface {
	// ConfigMap and Secret return an object that the caller doesn't change.
	// The error for one that does not exist satisfies apierrors.IsNotFound.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Tokens issues service account tokens.
type Tokens interface {
	// Token returns a token as the projection asks for it, bound to the pod.
	// It may return the same token until it has to be renewed.
	Token(ctx context.Context, pod *corev1.Pod, want *corev1.ServiceAccountTokenProjection) (string, error)
}

// Config says how a Manager works.
type Config struct {
	Root    string  // folder of all pods' folders, see Layout; absolute, required
	Sources Sources // required
	// Tokens is nil where there are no service accounts: volumes that need a
	// token then fail.
	Tokens Tokens
	// Allocatable is what the node has for pods. It bounds volumes in memory
	// and stands in for limits in downwardAPI volumes.
	Allocatable corev1.ResourceList
	Log         *slog.Logger // default: discard
}

func (c *Config) validate() error {
	var errs []error
	if !filepath.IsAbs(c.Root) {
		errs = append(errs, fmt.Errorf("volume: Config.Root is %q, want an absolute path", c.Root))
	}
	if c.Sources == nil {
		errs = append(errs, errors.New("volume: Config.Sources is required"))
	}
	return errors.Join(errs...)
}

// Mounted is a volume that containers can be given. For image volumes it holds
// the reference as the pod has it: pulling is the runtime's work.
type Mounted = podconfig.Volume

// Manager carries out what Plan says. It keeps no state but on the disk. Its
// methods are safe for concurrent use; calls for one pod wait for each other.
type Manager struct {
	Layout
	cfg Config
	log *slog.Logger

	mu sync.Mutex // guards busy; never held across I/O
	// busy holds the pods that some call works on; the channel is closed at
	// its end.
	busy map[types.UID]chan struct{}
}

// New returns a Manager. It makes the folder of all pods.
func New(cfg Config) (*Manager, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Root, "pods"), 0o750); err != nil {
		return nil, fmt.Errorf("cannot make folder of pods: %w", err)
	}
	// The kernel's mount table knows the real path only.
	root, err := filepath.EvalSymlinks(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("cannot find folder of pods: %w", err)
	}
	return &Manager{Layout: Layout{Root: root}, cfg: cfg, log: cfg.Log, busy: map[types.UID]chan struct{}{}}, nil
}

// Prepare makes all volumes of the pod be there, with their content, and says
// where. What is there already stays as it is: the files of an emptyDir are not
// touched a second time. Errors name volumes and not the pod, whose they are told as.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) (map[string]Mounted, error) {
	done, err := m.enter(ctx, pod.UID)
	if err != nil {
		return nil, err
	}
	defer done()
	found, err := m.found(pod.UID)
	if err != nil {
		return nil, fmt.Errorf("cannot look for volumes: %w", err)
	}
	steps, err := Plan(pod, found, m.cfg.Allocatable)
	if err != nil {
		return nil, err
	}
	for _, f := range steps.Remove {
		if err := remove(m.Volume(pod.UID, f.Kind, f.Name), 0); err != nil {
			return nil, fmt.Errorf("cannot remove old volume %q: %w", f.Name, err)
		}
	}
	mounted := make(map[string]Mounted, len(steps.Prepare))
	var errs problems
	for _, step := range steps.Prepare {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		mounted[step.Name], err = m.prepare(ctx, pod, step)
		if err != nil {
			errs.add(fmt.Errorf("cannot prepare volume %q: %w", step.Name, err))
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return mounted, nil
}

func (m *Manager) prepare(ctx context.Context, pod *corev1.Pod, step Step) (Mounted, error) {
	dir := m.Volume(pod.UID, step.Kind, step.Name)
	switch step.Kind {
	case Image:
		return Mounted{Image: step.Source.Image.Reference, ReadOnly: true}, nil
	case HostPath:
		return Mounted{HostPath: step.Source.HostPath.Path}, prepareHostPath(step.Source.HostPath)
	case EmptyDir:
		return Mounted{HostPath: dir, Relabel: true}, back(dir, step)
	case ConfigMap, Secret, DownwardAPI, Projected:
		_, err := m.write(ctx, pod, step, dir)
		return Mounted{HostPath: dir, ReadOnly: true, Relabel: true}, err
	}
	return Mounted{}, fmt.Errorf("kind %q is unknown", step.Kind)
}

// write makes the volume hold what the API says now.
func (m *Manager) write(ctx context.Context, pod *corev1.Pod, step Step, dir string) (changed bool, err error) {
	have, err := m.fetch(ctx, pod, &step.Source)
	if err != nil {
		return false, err
	}
	files, err := payload(pod, &step.Source, have, m.cfg.Allocatable)
	if err != nil {
		return false, err
	}
	if err := back(dir, step); err != nil {
		return false, err
	}
	for _, rel := range step.Nested {
		// A folder of this volume's own files is a link by the time a second
		// call comes here: it holds the mount point, or the runtime says so.
		if err := os.MkdirAll(filepath.Join(dir, rel), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, fmt.Errorf("cannot make mount point %q: %w", rel, err)
		}
	}
	return writePayload(dir, files, step.Group)
}

// fetch gets the objects that the volume is made of; those that do not exist
// are left out.
func (m *Manager) fetch(ctx context.Context, pod *corev1.Pod, source *corev1.VolumeSource) (objects, error) {
	have := objects{
		configMaps: map[string]*corev1.ConfigMap{},
		secrets:    map[string]*corev1.Secret{},
		tokens:     map[*corev1.ServiceAccountTokenProjection]string{},
	}
	configMap := func(name string) error {
		cm, err := m.cfg.Sources.ConfigMap(ctx, pod.Namespace, name)
		if err == nil {
			have.configMaps[name] = cm
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot get configmap %s/%s: %w", pod.Namespace, name, err)
		}
		return nil
	}
	secret := func(name string) error {
		s, err := m.cfg.Sources.Secret(ctx, pod.Namespace, name)
		if err == nil {
			have.secrets[name] = s
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot get secret %s/%s: %w", pod.Namespace, name, err)
		}
		return nil
	}
	var errs problems
	switch {
	case source.ConfigMap != nil:
		errs.add(configMap(source.ConfigMap.Name))
	case source.Secret != nil:
		errs.add(secret(source.Secret.SecretName))
	case source.Projected != nil:
		for i := range source.Projected.Sources {
			switch s := &source.Projected.Sources[i]; {
			case s.ConfigMap != nil:
				errs.add(configMap(s.ConfigMap.Name))
			case s.Secret != nil:
				errs.add(secret(s.Secret.Name))
			case s.ServiceAccountToken != nil:
				token, err := m.token(ctx, pod, s.ServiceAccountToken)
				have.tokens[s.ServiceAccountToken] = token
				errs.add(err)
			}
		}
	}
	return have, errs.err()
}

func (m *Manager) token(ctx context.Context, pod *corev1.Pod, want *corev1.ServiceAccountTokenProjection) (string, error) {
	if m.cfg.Tokens == nil {
		return "", errors.New("source serviceAccountToken needs a cluster that issues tokens, and there is none; set automountServiceAccountToken: false, or leave the source out")
	}
	token, err := m.cfg.Tokens.Token(ctx, pod, want)
	if err != nil {
		return "", fmt.Errorf("cannot get token of service account %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	return token, nil
}

// Refresh brings the content of the pod's prepared volumes up to date with the
// API. A volume that can't be is left as it is; the error says why.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod) error {
	done, err := m.enter(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer done()
	steps, err := Plan(pod, nil, m.cfg.Allocatable)
	if err != nil {
		return err
	}
	var errs problems
	for _, step := range steps.Prepare {
		if step.Backing == Elsewhere || step.Kind == EmptyDir {
			continue
		}
		dir := m.Volume(pod.UID, step.Kind, step.Name)
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			continue // not prepared yet, or removed: not ours to make
		}
		changed, err := m.write(ctx, pod, step, dir)
		if err != nil {
			errs.add(fmt.Errorf("cannot refresh volume %q: %w", step.Name, err))
			continue
		}
		if changed {
			m.log.Info("volume refreshed", "pod", format.Pod(pod), "uid", pod.UID, "volume", step.Name)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// List returns the pods that have volumes on the disk.
func (m *Manager) List() ([]types.UID, error) {
	entries, err := os.ReadDir(m.Pods())
	if err != nil {
		return nil, fmt.Errorf("cannot list pods: %w", err)
	}
	var all []types.UID
	for _, e := range entries {
		uid := types.UID(e.Name())
		if !e.IsDir() {
			continue
		}
		for _, dir := range []string{m.volumes(uid), m.subPaths(uid)} {
			if _, err := os.Lstat(dir); err == nil {
				all = append(all, uid)
				break
			}
		}
	}
	return all, nil
}

// Exists says whether anything of the pod is on the disk.
func (m *Manager) Exists(uid types.UID) bool {
	_, err := os.Lstat(m.Pod(uid))
	return checkUID(uid) == nil && err == nil
}

// found lists the pod's volumes on the disk, half-made ones too.
func (m *Manager) found(uid types.UID) ([]Found, error) {
	var all []Found
	kinds, err := os.ReadDir(m.volumes(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		names, err := os.ReadDir(filepath.Join(m.volumes(uid), kind.Name()))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all = append(all, Found{Kind: Kind(kind.Name()), Name: name.Name()})
		}
	}
	return all, nil
}

// enter waits until no other call works on the pod. The caller calls done at
// its end.
func (m *Manager) enter(ctx context.Context, uid types.UID) (done func(), err error) {
	if err := checkUID(uid); err != nil {
		return nil, err
	}
	for {
		m.mu.Lock()
		other, taken := m.busy[uid]
		if !taken {
			own := make(chan struct{})
			m.busy[uid] = own
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				delete(m.busy, uid)
				m.mu.Unlock()
				close(own)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// halfMade is the name of a folder until it is whole. No volume is named so.
func halfMade(name string) string { return "." + strings.TrimPrefix(name, ".") + ".new" }
