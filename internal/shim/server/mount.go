package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// mountFlags are the options of mount(8) that are flags; false clears one.
var mountFlags = map[string]struct {
	flag uintptr
	set  bool
}{
	"async": {unix.MS_SYNCHRONOUS, false}, "atime": {unix.MS_NOATIME, false}, "bind": {unix.MS_BIND, true},
	"defaults": {0, true}, "dev": {unix.MS_NODEV, false}, "diratime": {unix.MS_NODIRATIME, false},
	"dirsync": {unix.MS_DIRSYNC, true}, "exec": {unix.MS_NOEXEC, false}, "mand": {unix.MS_MANDLOCK, true},
	"noatime": {unix.MS_NOATIME, true}, "nodev": {unix.MS_NODEV, true}, "nodiratime": {unix.MS_NODIRATIME, true},
	"noexec": {unix.MS_NOEXEC, true}, "nomand": {unix.MS_MANDLOCK, false}, "norelatime": {unix.MS_RELATIME, false},
	"nostrictatime": {unix.MS_STRICTATIME, false}, "nosuid": {unix.MS_NOSUID, true},
	"rbind": {unix.MS_BIND | unix.MS_REC, true}, "relatime": {unix.MS_RELATIME, true},
	"ro": {unix.MS_RDONLY, true}, "rw": {unix.MS_RDONLY, false}, "strictatime": {unix.MS_STRICTATIME, true},
	"suid": {unix.MS_NOSUID, false}, "sync": {unix.MS_SYNCHRONOUS, true},
}

// parseOptions splits mount options into flags and the filesystem's own data.
func parseOptions(options []string) (flags uintptr, data []string) {
	for _, o := range options {
		f, ok := mountFlags[o]
		switch {
		case !ok:
			data = append(data, o)
		case f.set:
			flags |= f.flag
		default:
			flags &^= f.flag
		}
	}
	return flags, data
}

// mountRootfs mounts mounts at target, one on top of the other. On an error
// none is left.
func mountRootfs(target string, mounts []*shimpb.Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	for i, m := range mounts {
		if err := mountOne(target, m); err != nil {
			return errors.Join(fmt.Errorf("cannot mount %s on %s: %w", m.Type, target, err), unmountRootfs(target, i))
		}
	}
	return nil
}

func mountOne(target string, m *shimpb.Mount) error {
	flags, data := parseOptions(m.Options)
	if err := mountPage(target, m, flags, data); err != nil {
		return err
	}
	// The kernel ignores ro and the like when a bind mount is made.
	const changeable = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if flags&unix.MS_BIND != 0 && flags&changeable != 0 {
		if err := unix.Mount("", target, "", flags|unix.MS_REMOUNT, ""); err != nil {
			return errors.Join(err, unmountRootfs(target, 1))
		}
	}
	return nil
}

// mountPage mounts by mount(2), which takes a page of options. Where they are
// longer, the paths of an overlay are given relative to what they share: that does
// for the 500 layers that the kernel allows, but for odd paths.
func mountPage(target string, m *shimpb.Mount, flags uintptr, data []string) error {
	options := strings.Join(data, ",")
	if len(options) < os.Getpagesize() {
		return unix.Mount(m.Source, target, m.Type, flags, options)
	}
	if dir, short := relativeLayers(data); m.Type == "overlay" && len(short) < os.Getpagesize() && filepath.IsAbs(target) {
		return mountFrom(dir, m.Source, target, m.Type, flags, short)
	}
	return mountLong(target, m, flags, data)
}

// relativeLayers joins the options of an overlay, with its paths relative to the
// folder that all of them are in.
func relativeLayers(data []string) (dir, options string) {
	isPath := func(key string) bool { return key == "lowerdir" || key == "upperdir" || key == "workdir" }
	for _, o := range data {
		if key, value, _ := strings.Cut(o, "="); isPath(key) {
			for p := range strings.SplitSeq(value, ":") {
				if dir == "" {
					dir = filepath.Dir(p)
				}
				for dir != "/" && dir != "." && !strings.HasPrefix(p, dir+"/") {
					dir = filepath.Dir(dir)
				}
			}
		}
	}
	short := make([]string, len(data))
	for i, o := range data {
		short[i] = o
		if key, value, _ := strings.Cut(o, "="); isPath(key) {
			paths := strings.Split(value, ":")
			for j := range paths {
				paths[j] = strings.TrimPrefix(paths[j], strings.TrimSuffix(dir, "/")+"/")
			}
			short[i] = key + "=" + strings.Join(paths, ":")
		}
	}
	return dir, strings.Join(short, ",")
}

// mountFrom mounts with a working directory of its own, for the paths in options.
func mountFrom(dir, source, target, fstype string, flags uintptr, options string) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread, which shares no working directory with the
		// others any more, ends with the goroutine.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return os.NewSyscallError("unshare", err)
			}
			if err := unix.Chdir(dir); err != nil {
				return &os.PathError{Op: "chdir", Path: dir, Err: err}
			}
			return unix.Mount(source, target, fstype, flags, options)
		}()
	}()
	return <-done
}

// mountLong mounts with options longer than a page, one by one. Needs Linux 6.7
// (lowerdir+).
func mountLong(target string, m *shimpb.Mount, flags uintptr, data []string) error {
	fs, err := unix.Fsopen(m.Type, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	if m.Source != "" {
		if err := unix.FsconfigSetString(fs, "source", m.Source); err != nil {
			return os.NewSyscallError("fsconfig source", err)
		}
	}
	for _, o := range data {
		key, value, hasValue := strings.Cut(o, "=")
		switch {
		case key == "lowerdir":
			for _, dir := range strings.Split(value, ":") {
				if err := unix.FsconfigSetString(fs, "lowerdir+", dir); err != nil {
					return fmt.Errorf("cannot add layer %s (mount options longer than a page need Linux 6.7): %w", dir, err)
				}
			}
		case hasValue:
			if err := unix.FsconfigSetString(fs, key, value); err != nil {
				return fmt.Errorf("cannot set mount option %s: %w", o, err)
			}
		default:
			if err := unix.FsconfigSetFlag(fs, key); err != nil {
				return fmt.Errorf("cannot set mount option %s: %w", o, err)
			}
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return os.NewSyscallError("fsconfig create", err)
	}
	attrs := 0
	for flag, attr := range map[uintptr]int{
		unix.MS_RDONLY: unix.MOUNT_ATTR_RDONLY, unix.MS_NOSUID: unix.MOUNT_ATTR_NOSUID, unix.MS_NODEV: unix.MOUNT_ATTR_NODEV,
		unix.MS_NOEXEC: unix.MOUNT_ATTR_NOEXEC, unix.MS_NOATIME: unix.MOUNT_ATTR_NOATIME,
	} {
		if flags&flag != 0 {
			attrs |= attr
		}
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return os.NewSyscallError("fsmount", err)
	}
	defer unix.Close(mnt)
	return os.NewSyscallError("move_mount", unix.MoveMount(mnt, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// unmountRootfs removes up to n mounts from target. Fewer than n being there is
// no error.
func unmountRootfs(target string, n int) error {
	for range n {
		err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err == unix.EINVAL || err == unix.ENOENT {
			return nil // nothing is mounted
		}
		if err != nil {
			return fmt.Errorf("cannot unmount %s: %w", target, err)
		}
	}
	return nil
}

// rootfsPath is where a bundle's root filesystem is mounted.
func rootfsPath(bundle string) string { return filepath.Join(bundle, "rootfs") }
