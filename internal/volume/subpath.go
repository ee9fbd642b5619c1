package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// SubPath is a part of a volume that a container mounts.
type SubPath struct {
	Volume    string // name of the volume
	HostPath  string // where the volume is, from Prepare
	Container string
	Index     int    // of the mount in the container's volumeMounts
	Path      string // relative to the volume
}

// SubPath makes the part of the volume available at a path of its own and
// returns that. Folders that are missing are made, with the mode of the volume.
// Links are followed within the volume; one that leads out of it is an error.
// What is returned is the part itself, held by a bind mount: a container that
// changes links in the volume afterwards can't redirect it.
func (m *Manager) SubPath(ctx context.Context, uid types.UID, s SubPath) (string, error) {
	done, err := m.enter(ctx, uid)
	if err != nil {
		return "", err
	}
	defer done()
	if !plainName(s.Volume) || !plainName(s.Container) {
		return "", fmt.Errorf("cannot prepare subPath of volume %q for container %q: no plain names", s.Volume, s.Container)
	}
	target := filepath.Join(m.subPaths(uid), s.Volume, s.Container, strconv.Itoa(s.Index))
	if err := bindPart(s.HostPath, s.Path, target); err != nil {
		return "", fmt.Errorf("cannot prepare subPath %q of volume %q for container %s: %w", s.Path, s.Volume, s.Container, err)
	}
	return target, nil
}

func bindPart(volume, sub, target string) error {
	part, err := openPart(volume, sub)
	if err != nil {
		return err
	}
	defer part.Close()
	info, err := part.Stat()
	if err != nil {
		return err
	}
	// An earlier attempt of the container may have left another one.
	if err := unmount(target); err != nil {
		return err
	}
	if err := makeTarget(target, info.IsDir()); err != nil {
		return err
	}
	if err := unix.Mount(fdPath(part), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot bind to %s: %w", target, err)
	}
	return nil
}

// makeTarget makes an empty folder or file to mount on.
func makeTarget(target string, folder bool) error {
	if info, err := os.Lstat(target); err == nil && info.IsDir() != folder {
		if err := os.Remove(target); err != nil {
			return fmt.Errorf("cannot remove old mount point: %w", err)
		}
	}
	if folder {
		return os.MkdirAll(target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// openPart opens sub in the volume, making folders that are missing. Names are
// resolved first and then opened without following any link, so that one put
// there in between is found out.
func openPart(volume, sub string) (*os.File, error) {
	root, err := filepath.EvalSymlinks(volume)
	if err != nil {
		return nil, err
	}
	found, missing, err := resolve(root, sub)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, found)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return nil, errors.New("it leads out of the volume through a link")
	}
	base, err := os.OpenFile(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if rel == "." && len(missing) == 0 {
		return base, nil
	}
	defer base.Close()
	info, err := base.Stat()
	if err != nil {
		return nil, err
	}
	part, err := openBeneath(base, rel)
	if err != nil {
		return nil, err
	}
	for _, name := range missing {
		next, err := makeBeneath(part, name, info)
		part.Close()
		if err != nil {
			return nil, err
		}
		part = next
	}
	return part, nil
}

// resolve follows all links of sub as far as it exists; missing is the rest.
func resolve(root, sub string) (found string, missing []string, err error) {
	parts := strings.FieldsFunc(sub, func(r rune) bool { return r == '/' })
	for n := len(parts); n >= 0; n-- {
		found, err = filepath.EvalSymlinks(filepath.Join(append([]string{root}, parts[:n]...)...))
		if err == nil {
			return found, parts[n:], nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", nil, err
		}
	}
	return "", nil, err
}

// openBeneath opens a file below dir, following no link.
func openBeneath(dir *os.File, rel string) (*os.File, error) {
	// With O_NOFOLLOW it would open a link itself.
	fd, err := openat2(int(dir.Fd()), rel, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%q is a link to nothing, or became a link while it was opened", rel)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	return os.NewFile(uintptr(fd), rel), nil
}

// makeBeneath makes and opens a folder in dir, with the mode of the volume.
func makeBeneath(dir *os.File, name string, volume fs.FileInfo) (*os.File, error) {
	err := unix.Mkdirat(int(dir.Fd()), name, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	next, err := openBeneath(dir, name)
	if err != nil || !made {
		return next, err
	}
	// Only a folder made here gets a mode; the umask does not count.
	if err := os.Chmod(fdPath(next), volume.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky)); err != nil {
		next.Close()
		return nil, err
	}
	return next, nil
}

// maxReadBytes bounds ReadFile: what it reads ends up in an environment.
const maxReadBytes = 1 << 20

// ReadFile reads a file in a prepared volume, for fileKeyRef. Links are followed
// as a container with the volume as its root would. The error for a file that
// does not exist satisfies errors.Is(err, fs.ErrNotExist).
func ReadFile(volume, path string) ([]byte, error) {
	content, err := readFile(volume, path)
	if err != nil {
		return nil, fmt.Errorf("cannot read file of volume: %w", err)
	}
	return content, nil
}

func readFile(volume, path string) ([]byte, error) {
	dir, err := os.OpenFile(volume, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// Looked at before it is opened: a container may have made a device or a pipe
	// there, which it could not open itself.
	fd, err := openat2(int(dir.Fd()), path, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	found := os.NewFile(uintptr(fd), path)
	defer found.Close()
	info, err := found.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a %s", path, hostPathType(info.Mode()))
	}
	f, err := os.Open(fdPath(found))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxReadBytes+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxReadBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxReadBytes)
	}
	return content, nil
}

// openat2 gives a handle of a file that is not opened itself.
func openat2(dir int, path string, resolve uint64) (fd int, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve}
	for range 100 {
		// EAGAIN: something was renamed meanwhile, anywhere, so that the kernel
		// can't tell whether a ".." led out.
		if fd, err = unix.Openat2(dir, path, &how); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}

// fdPath names an open file for calls that take paths.
func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }
