// Package remote runs pods over CRI's Go interfaces: berth's own runtime in the
// same process, or containerd and CRI-O behind a socket.
//
// It looks up what package podconfig needs to know (volumes, ConfigMaps, images,
// addresses), hands the configs to the runtime, and reads back what runs.
// Observations are kept for each pod and fetched again only when an event, an
// action's end or a periodic comparison says that they may be old.
//
// Nothing is chosen here but how to reach what was asked for. Every action may
// be repeated: what an earlier one left is found by labels and taken over or
// removed.
package remote

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/podconfig"
	"github.com/berth-run/berth/internal/podruntime"
	"github.com/berth-run/berth/internal/volume"
)

// Volumes puts a pod's volumes on the host; volume.Manager is the real one.
type Volumes interface {
	// Prepare makes all volumes be there and says where; idempotent.
	Prepare(ctx context.Context, pod *corev1.Pod) (map[string]podconfig.Volume, error)
	// SubPath makes a part of a volume available at a path of its own.
	SubPath(ctx context.Context, uid types.UID, part volume.SubPath) (string, error)
	// Refresh brings the content of prepared volumes up to date.
	Refresh(ctx context.Context, pod *corev1.Pod) error
	// RemovePod removes all volumes and the pod's folder; idempotent.
	RemovePod(ctx context.Context, uid types.UID) error
	// Exists says whether the pod's folder is there.
	Exists(uid types.UID) bool
	// Pods is the folder that holds one folder a pod, named by uid.
	Pods() string
	// Pod is the folder of one pod.
	Pod(uid types.UID) string
	// HostsFile is where the pod's /etc/hosts is kept.
	HostsFile(uid types.UID) string
	// MakeTerminationLog makes the file for a container's last words.
	MakeTerminationLog(uid types.UID, container string, attempt int) (string, error)
}

// Cgroups makes the cgroups of pods.
type Cgroups interface {
	// Make makes the pod's cgroup with its limits; idempotent.
	Make(ctx context.Context, pod *corev1.Pod) error
	// Parent names the pod's cgroup as the runtime wants it.
	Parent(pod *corev1.Pod) string
	// Remove removes the pod's cgroup; no error if there is none.
	Remove(ctx context.Context, uid types.UID) error
}

// Sources is where ConfigMaps and Secrets come from. The error for one that
// does not exist satisfies apierrors.IsNotFound.
type Sources interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Credentials finds the logins for an image.
type Credentials interface {
	// Lookup returns the logins to try for the image in order: those of the
	// secrets, then the node's. None: pull without a login.
	Lookup(ctx context.Context, image string, secrets []corev1.Secret) ([]Login, error)
}

// Login is what to pull an image with. The zero value is no login.
type Login struct {
	Auth *runtimeapi.AuthConfig
	// Secret says from which pull secret it is; nil: each pod has it.
	Secret *SecretLogin
}

// Puller pulls an image and tells how far it is: bytes done of total, total 0
// while it is not known.
type Puller interface {
	Pull(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, progress func(done, total int64)) (ref string, err error)
}

// Progress is how far the pull of a container's image is.
type Progress struct {
	Pod         *corev1.Pod
	Container   string
	Image       string
	Done, Total int64 // bytes; Total is 0 while it is not known
}

// Config says what a Runtime works with. The zero value of an optional field
// means its default.
type Config struct {
	Service criapi.RuntimeService      // required
	Images  criapi.ImageManagerService // required
	Volumes Volumes                    // required
	Sources Sources                    // required
	// Facts says what is known of the node; required. Attempt and CgroupParent
	// are filled in.
	Facts func(pod *corev1.Pod) podconfig.Facts
	// HostIPs are the node's addresses, the primary one first. Default: none.
	HostIPs func() []string
	// Cgroups makes pod cgroups; nil: the runtime's own way.
	Cgroups Cgroups
	// Credentials finds logins; nil: those of imagePullSecrets only.
	Credentials Credentials
	// Puller pulls with progress; nil: Images pulls, without.
	Puller Puller
	// LocalRegistry is the registry in names of images that are made on this
	// machine: they are never pulled, whatever the policy. Default
	// "berth.local".
	LocalRegistry string
	// MakeLocal makes such an image, if it is one that berth makes by itself;
	// called before each use. Default: nobody.
	MakeLocal func(ctx context.Context, image string) error
	// Pulls remembers from run to run who may use which image. Default: nobody.
	Pulls PullRecords
	// Progress is told how pulls go on. It must not block. Default: nobody.
	Progress func(Progress)
	// Recorder takes Pulling and Pulled. Default: nobody.
	Recorder podruntime.Recorder
	// Owner marks what this node made, where a runtime serves others too: only
	// what bears the same mark is listed by Pods. Empty: all is ours.
	Owner string
	// RuntimeHandler is asked for the sandboxes of pods without a runtime class,
	// whose name is its handler's; empty: the runtime's default.
	RuntimeHandler string
	// RecursiveReadOnly says that the runtime can mount recursively read-only.
	RecursiveReadOnly bool
	MaxPulls          int           // pulls at once; default 5
	Relist            time.Duration // how often all is compared; default 60 s
	CallTimeout       time.Duration // bounds one call that makes or removes; default 2 min
	Log               *slog.Logger  // default: discard
}

func (c *Config) complete() error {
	var errs []error
	require := func(ok bool, field string) {
		if !ok {
			errs = append(errs, errors.New("remote: Config."+field+" is required"))
		}
	}
	require(c.Service != nil, "Service")
	require(c.Images != nil, "Images")
	require(c.Volumes != nil, "Volumes")
	require(c.Sources != nil, "Sources")
	require(c.Facts != nil, "Facts")
	if c.HostIPs == nil {
		c.HostIPs = func() []string { return nil }
	}
	if c.Credentials == nil {
		c.Credentials = &DockerCredentials{}
	}
	if c.Puller == nil && c.Images != nil {
		c.Puller = plainPuller{c.Images}
	}
	if c.LocalRegistry == "" {
		c.LocalRegistry = "berth.local"
	}
	if c.MakeLocal == nil {
		c.MakeLocal = func(context.Context, string) error { return nil }
	}
	if c.Pulls == nil {
		c.Pulls = noRecords{}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	if c.Recorder == nil {
		c.Recorder = nobody{}
	}
	if c.MaxPulls <= 0 {
		c.MaxPulls = 5
	}
	if c.Relist <= 0 {
		c.Relist = time.Minute
	}
	if c.CallTimeout <= 0 {
		c.CallTimeout = 2 * time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

type nobody struct{}

func (nobody) Record(corev1.ObjectReference, string, string, string) {}

// plainPuller pulls by CRI, which tells nothing on the way.
type plainPuller struct{ images criapi.ImageManagerService }

func (p plainPuller) Pull(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ func(done, total int64)) (string, error) {
	return p.images.PullImage(ctx, image, auth, nil)
}
