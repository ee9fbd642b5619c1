package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// prepareHostPath checks that the host's path is of the wanted type, and makes
// it where the type says so. Nothing is mounted here: the runtime mounts the
// path itself.
func prepareHostPath(source *corev1.HostPathVolumeSource) error {
	path := source.Path
	if slices.Contains(strings.Split(path, "/"), "..") {
		return fmt.Errorf("hostPath %q contains '..'; write the path without it", path)
	}
	want := corev1.HostPathUnset
	if source.Type != nil {
		want = *source.Type
	}
	info, err := os.Stat(path)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		return makeHostPath(path, want)
	default:
		return fmt.Errorf("cannot look at hostPath: %w", err)
	}
	is := hostPathType(info.Mode())
	ok := false
	switch want {
	case corev1.HostPathUnset:
		ok = true
	case corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory:
		ok = info.IsDir()
	case corev1.HostPathFileOrCreate, corev1.HostPathFile:
		ok = info.Mode().IsRegular()
	case corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev:
		ok = is == hostPathWord(want)
	default:
		return fmt.Errorf("hostPath type %q is unknown; use one of Directory, DirectoryOrCreate, File, FileOrCreate, Socket, CharDevice, BlockDevice, or leave it out", want)
	}
	if !ok {
		return fmt.Errorf("hostPath %q is a %s, not a %s (type %s); name another path or change the type", path, is, hostPathWord(want), want)
	}
	return nil
}

// makeHostPath makes a path that does not exist, if its type lets it. A path of
// no type is made as a folder: the kubelet leaves it to the runtime, and
// containerd makes one.
func makeHostPath(path string, want corev1.HostPathType) error {
	switch want {
	case corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("cannot make hostPath: %w", err)
		}
		return nil
	case corev1.HostPathFileOrCreate:
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot make hostPath %q: its folder does not exist; make it first, FileOrCreate makes only the file", path)
		}
		if err != nil {
			return fmt.Errorf("cannot make hostPath: %w", err)
		}
		return f.Close()
	case corev1.HostPathDirectory, corev1.HostPathFile:
		return fmt.Errorf("hostPath %q does not exist; make it, or use type %sOrCreate", path, want)
	default:
		return fmt.Errorf("hostPath %q does not exist; it must be a %s (type %s)", path, hostPathWord(want), want)
	}
}

func hostPathWord(t corev1.HostPathType) string {
	switch t {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate, corev1.HostPathUnset:
		return "directory"
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		return "file"
	case corev1.HostPathSocket:
		return "socket"
	case corev1.HostPathCharDev:
		return "character device"
	case corev1.HostPathBlockDev:
		return "block device"
	}
	return string(t)
}

func hostPathType(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode.IsRegular():
		return "file"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeCharDevice != 0:
		return "character device"
	case mode&fs.ModeDevice != 0:
		return "block device"
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	}
	return "special file"
}
