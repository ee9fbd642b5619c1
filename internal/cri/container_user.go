package cri

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/ocispec"
)

// resolveUser finds out who the container runs as, looking names and groups up
// in the image's /etc/passwd and /etc/group. The security context goes before
// the image's own user.
func resolveUser(ctx context.Context, config *runtimeapi.ContainerConfig, imageUser string, fs rootfs) (ocispec.User, error) {
	sc := config.GetLinux().GetSecurityContext()
	user, err := userString(sc)
	if err != nil {
		return ocispec.User{}, err
	}
	if user == "" {
		user = imageUser
	}
	if user == "" {
		user = "0"
	}
	spec := &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{}, Root: &specs.Root{Path: fs.mountedAt}}
	c := &containers.Container{}
	if fs.mountedAt == "" {
		c.Snapshotter, c.SnapshotKey = "rootfs", "rootfs" // of fs, whatever the names
	}
	if err := oci.WithUser(user)(ctx, fs, c, spec); err != nil {
		return ocispec.User{}, fmt.Errorf("cannot find user %q in the image: %w", user, err)
	}
	u := &spec.Process.User
	groups := slices.Clone(u.AdditionalGids)
	if sc.GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Merge {
		name, _, _ := strings.Cut(user, ":")
		if err := oci.WithAdditionalGIDs(name)(ctx, fs, c, spec); err != nil {
			return ocispec.User{}, fmt.Errorf("cannot find the groups of user %q in the image: %w", name, err)
		}
		groups = append(groups, u.AdditionalGids...)
	}
	for _, g := range sc.GetSupplementalGroups() {
		groups = append(groups, uint32(g))
	}
	slices.Sort(groups)
	return ocispec.User{UID: u.UID, GID: u.GID, Groups: slices.Compact(groups)}, nil
}

// userString is the user of a security context as USER[:GROUP]; "" if it names
// none.
func userString(sc *runtimeapi.LinuxContainerSecurityContext) (string, error) {
	user := sc.GetRunAsUsername()
	if uid := sc.GetRunAsUser(); uid != nil {
		user = strconv.FormatInt(uid.GetValue(), 10)
	}
	gid := sc.GetRunAsGroup()
	if gid == nil {
		return user, nil
	}
	if user == "" {
		return "", status.Error(codes.InvalidArgument, "a group to run as needs a user to run as")
	}
	return user + ":" + strconv.FormatInt(gid.GetValue(), 10), nil
}

// rootfs shows containerd's helpers one root file system. It need not be
// mounted: they look into its layers.
type rootfs struct {
	snapshots.Snapshotter // nil: only Mounts is asked for
	mounts                []mount.Mount
	mountedAt             string // if not empty, it is looked at there
}

func (r rootfs) SnapshotService(string) snapshots.Snapshotter { return r }

func (r rootfs) Mounts(context.Context, string) ([]mount.Mount, error) { return r.mounts, nil }
