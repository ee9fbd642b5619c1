package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// back makes the folder or mount that holds the volume's files, whole or not at
// all. What is there already stays as it is.
func back(dir string, step Step) error {
	switch step.Backing {
	case Disk:
		return makeFolder(dir, step)
	case Memory:
		options := fmt.Sprintf("mode=%o", step.Mode)
		if step.Group != nil {
			options += fmt.Sprintf(",gid=%d", *step.Group)
		}
		if step.SizeBytes > 0 {
			options += fmt.Sprintf(",size=%d", step.SizeBytes)
		}
		err := mountAt(dir, "tmpfs", options+",noswap")
		if errors.Is(err, unix.EINVAL) { // before Linux 6.4
			err = mountAt(dir, "tmpfs", options)
		}
		return err
	case HugePages:
		options := fmt.Sprintf("pagesize=%d,mode=%o", step.PageBytes, step.Mode)
		if step.Group != nil {
			options += fmt.Sprintf(",gid=%d", *step.Group)
		}
		return mountAt(dir, "hugetlbfs", options)
	case Elsewhere:
	}
	return nil
}

// makeFolder makes a folder on the disk with the right mode and group, under
// another name first: a crash leaves no folder that looks right and is not.
func makeFolder(dir string, step Step) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot look at folder: %w", err)
	}
	parent, name := filepath.Split(dir)
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return fmt.Errorf("cannot make folder: %w", err)
	}
	half := filepath.Join(parent, halfMade(name))
	if err := os.Mkdir(half, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot make folder: %w", err)
	}
	if step.Group != nil {
		if err := os.Lchown(half, 0, int(*step.Group)); err != nil {
			return fmt.Errorf("cannot set group %d: %w", *step.Group, err)
		}
	}
	if err := unix.Chmod(half, step.Mode); err != nil {
		return fmt.Errorf("cannot set mode of %s: %w", half, err)
	}
	if err := os.Rename(half, dir); err != nil {
		return fmt.Errorf("cannot make folder: %w", err)
	}
	return nil
}

// mountAt mounts a new file system at dir, unless something is mounted there.
func mountAt(dir, kind, options string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("cannot make folder: %w", err)
	}
	mounted, err := isMount(dir)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount(kind, dir, kind, 0, options); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("cannot mount %s on %s: %w; berth must run as root", kind, dir, err)
		}
		return fmt.Errorf("cannot mount %s (%s) on %s: %w", kind, options, dir, err)
	}
	return nil
}

// isMount says whether path itself is where something is mounted. It follows no
// link. A path that does not exist is none.
func isMount(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &st)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, fmt.Errorf("cannot tell whether %s is a mount: the kernel does not say; Linux 5.8 or newer is needed", path)
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// unmount takes away all that is mounted at path, one upon the other, and what
// is mounted below it. A path that is no mount is left alone.
func unmount(path string) error {
	for {
		mounted, err := isMount(path)
		if err != nil || !mounted {
			return err
		}
		// Private first: a sub-path of the host is a peer of the host's own
		// mount, and unmounting what containers have mounted below it would
		// reach the host.
		if err := unix.Mount("", path, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("cannot make mount %s private: %w", path, err)
		}
		// Detached, since somebody may still have a file open in it.
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("cannot unmount %s: %w", path, err)
		}
	}
}
