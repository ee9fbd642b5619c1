package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/oci"
	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/ocispec"
)

// resolveUser finds out who the container runs as, looking names and groups up
// in the image's /etc/passwd and /etc/group. The security context goes before
// the image's own user.
func resolveUser(ctx context.Context, config *runtimeapi.ContainerConfig, imageUser string, from rootfs) (u ocispec.User, err error) {
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
	err = from.within(ctx, func(root string) error {
		u, err = findUser(ctx, sc, user, root)
		return err
	})
	return u, err
}

// findUser looks a user up below root.
func findUser(ctx context.Context, sc *runtimeapi.LinuxContainerSecurityContext, user, root string) (ocispec.User, error) {
	for _, name := range []string{"etc/passwd", "etc/group"} {
		if err := checkRegular(root, name); err != nil {
			return ocispec.User{}, fmt.Errorf("cannot find user %q in the image: %w", user, err)
		}
	}
	spec := &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{}, Root: &specs.Root{Path: root}}
	c := &containers.Container{} // without a snapshot: the root is looked at
	if err := oci.WithUser(user)(ctx, nil, c, spec); err != nil {
		return ocispec.User{}, fmt.Errorf("cannot find user %q in the image: %w", user, err)
	}
	u := &spec.Process.User
	groups := slices.Clone(u.AdditionalGids)
	if sc.GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Merge {
		name, _, _ := strings.Cut(user, ":")
		if err := oci.WithAdditionalGIDs(name)(ctx, nil, c, spec); err != nil {
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

// checkRegular refuses what is there and is no regular file: opening a named pipe
// waits for somebody who writes to it, for ever.
func checkRegular(root, name string) error {
	at, err := securejoin.SecureJoin(root, name)
	if err != nil {
		return err
	}
	info, err := os.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("/%s is not a regular file", name)
	}
	return nil
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
		return "", coded(codes.InvalidArgument, "a group to run as needs a user to run as")
	}
	return user + ":" + strconv.FormatInt(gid.GetValue(), 10), nil
}

// rootfs is a root file system, mounted or not.
type rootfs struct {
	mounts    []mount.Mount
	mountedAt string // if not empty, it is mounted there
}

// within calls f with a folder where the file system can be read, as long as f
// runs.
func (r rootfs) within(ctx context.Context, f func(root string) error) error {
	if r.mountedAt != "" {
		return f(r.mountedAt)
	}
	var within error // as f says it, without where it was mounted
	err := mount.WithReadonlyTempMount(ctx, r.mounts, func(root string) error {
		within = f(root)
		return within
	})
	if within != nil {
		return within
	}
	return err
}
