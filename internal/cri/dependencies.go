package cri

import (
	"context"
	"io"
	"net/netip"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/network"
	"github.com/berth-run/berth/internal/shim"
)

// Shim runs containers. *shim.Client is the real one.
type Shim interface {
	// Create makes namespaces, root file system and cgroup; the process waits.
	Create(ctx context.Context, r shim.CreateRequest) (shim.CreateResult, error)
	// Start lets the process run its command.
	Start(ctx context.Context, id string) (startedAt time.Time, err error)
	// Signal reaches the first process, or all of them. No error if it ended.
	Signal(ctx context.Context, id string, sig syscall.Signal, all bool) error
	// Delete ends what still runs, unmounts the root and forgets id; idempotent.
	Delete(ctx context.Context, id string) error
	// DeleteNotRun is Delete of what was not run, else ErrState. A start under way
	// ends first.
	DeleteNotRun(ctx context.Context, id string) error
	List(ctx context.Context) ([]shim.Status, error)
	// Events calls f for each exit not yet deleted, then for what happens, until
	// ctx ends. f must not block for long.
	Events(ctx context.Context, f func(shim.Event)) error
	Exec(ctx context.Context, r shim.ExecRequest) (shim.Exit, error)
	Attach(ctx context.Context, r shim.AttachRequest) error
	ReopenLog(ctx context.Context, id string) error
	Update(ctx context.Context, id string, r *specs.LinuxResources) error
	// Stats reads a container's cgroups, DetailedStats looks at its processes as
	// well, GroupStats reads any cgroup by its path below the hierarchies.
	Stats(ctx context.Context, id string) (shim.Stats, error)
	DetailedStats(ctx context.Context, id string) (shim.Stats, error)
	GroupStats(ctx context.Context, cgroup string) (shim.Stats, error)
}

// Images keeps images and the file systems made from them.
// *imagestore.Store is the real one.
type Images interface {
	Get(ctx context.Context, refOrID string) (imagestore.Image, error)
	List(ctx context.Context) ([]imagestore.Image, error)
	Pull(ctx context.Context, ref string, auth *runtimeapi.AuthConfig, progress func(imagestore.Progress)) (imagestore.Image, error)
	Remove(ctx context.Context, refOrID string) error
	Usage(ctx context.Context) (imagestore.Usage, error)
	// Prepare makes a writable file system under key; a second call for the
	// same key and image gives the same one.
	Prepare(ctx context.Context, key string, img imagestore.Image, o imagestore.SnapshotOptions) ([]mount.Mount, error)
	// View makes a read-only one.
	View(ctx context.Context, key string, img imagestore.Image, o imagestore.SnapshotOptions) ([]mount.Mount, error)
	// Release drops what Prepare or View made; no error if there is nothing.
	Release(ctx context.Context, key string) error
	// Snapshots lists what was not released.
	Snapshots(ctx context.Context) ([]imagestore.SnapshotInfo, error)
	// SnapshotUsage measures what was written under key. It walks the files.
	SnapshotUsage(ctx context.Context, key string) (bytes, inodes int64, err error)
}

// Network connects sandboxes. *cni.Switch and *network.Network are real ones.
type Network interface {
	Setup(ctx context.Context, r network.Request) (network.Result, error)
	Teardown(ctx context.Context, id string) error // works without a namespace; idempotent
	// Reclaim tears down what live does not name.
	Reclaim(ctx context.Context, live func(id string) bool) (int, error)
	// Cleanup removes everything, also what all sandboxes share.
	Cleanup(ctx context.Context) error
	// Status says whether a sandbox can be connected now.
	Status(ctx context.Context) network.Status
	// UseRanges takes what a cluster has chosen for the pods of this node, if it
	// was not told otherwise.
	UseRanges(ctx context.Context, ranges []netip.Prefix) error
}

// streams are the ends of one exec or attach.
type streams struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	tty            bool
	resize         <-chan shim.Size
}
