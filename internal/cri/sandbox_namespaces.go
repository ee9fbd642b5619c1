package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/containerd/containerd/v2/pkg/sys"
	"golang.org/x/sys/unix"
)

// nsKind names a namespace as /proc/PID/ns does.
type nsKind string

const (
	nsNet  nsKind = "net"
	nsIPC  nsKind = "ipc"
	nsUTS  nsKind = "uts"
	nsUser nsKind = "user"
	nsPID  nsKind = "pid"
)

// cloneFlag is the kernel's flag for the kind.
func (k nsKind) cloneFlag() int {
	switch k {
	case nsNet:
		return unix.CLONE_NEWNET
	case nsIPC:
		return unix.CLONE_NEWIPC
	case nsUTS:
		return unix.CLONE_NEWUTS
	case nsUser:
		return unix.CLONE_NEWUSER
	case nsPID:
		return unix.CLONE_NEWPID
	}
	return 0
}

// pinPath is where a namespace of a sandbox is held: a bind mount of its nsfs
// file, so that no process has to.
func (s *Service) pinPath(id string, k nsKind) string {
	return filepath.Join(s.namespaceDir(id), string(k))
}

// ownNamespaces lists the kinds the sandbox doesn't take from the host, without
// the user and pid namespaces.
func (sb *sandbox) ownNamespaces() []nsKind {
	var kinds []nsKind
	if !sb.hostNetwork() {
		// The host name belongs to the network's identity: with the host's
		// network a pod has the host's name too (as with other runtimes).
		kinds = append(kinds, nsNet, nsUTS)
	}
	if !sb.hostIPC() {
		kinds = append(kinds, nsIPC)
	}
	return kinds
}

// makeNamespaces makes and pins the sandbox's namespaces and sets its host name.
func (s *Service) makeNamespaces(sb *sandbox) error {
	kinds := sb.ownNamespaces()
	dir := s.namespaceDir(sb.id)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	if uids, gids, ok := sb.userNamespace(); ok {
		if err := pinWithUser(dir, kinds, idMapping(uids), idMapping(gids)); err != nil {
			return err
		}
		if sb.hostNetwork() {
			return nil
		}
		return inNamespaces(dir, []nsKind{nsUTS}, func() error { return unix.Sethostname([]byte(sb.config.GetHostname())) })
	}
	if len(kinds) == 0 {
		return nil
	}
	return onThrowawayThread(func() error {
		flags := 0
		for _, k := range kinds {
			flags |= k.cloneFlag()
		}
		if err := unix.Unshare(flags); err != nil {
			return fmt.Errorf("cannot unshare: %w", err)
		}
		if err := pin(dir, kinds, "/proc/thread-self/ns"); err != nil {
			return err
		}
		if sb.hostNetwork() {
			return nil
		}
		return unix.Sethostname([]byte(sb.config.GetHostname()))
	})
}

// pinWithUser makes a user namespace and the others as its property. A process
// is needed for that, since a thread can't enter one alone; it ends at once.
func pinWithUser(dir string, kinds []nsKind, uids, gids string) error {
	flags := 0
	for _, k := range kinds {
		flags |= k.cloneFlag()
	}
	return sys.UnshareAfterEnterUserns(uids, gids, uintptr(flags), func(pid int) error {
		return pin(dir, append([]nsKind{nsUser}, kinds...), fmt.Sprintf("/proc/%d/ns", pid))
	})
}

// pin binds the namespace files in procNS to files of the same name in dir.
func pin(dir string, kinds []nsKind, procNS string) error {
	for _, k := range kinds {
		target := filepath.Join(dir, string(k))
		f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o444)
		if err != nil {
			return err
		}
		f.Close()
		if err := unix.Mount(filepath.Join(procNS, string(k)), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot pin %s namespace: %w", k, err)
		}
	}
	return nil
}

// unpin lets go of the namespaces held in dir. They end with their last process.
func unpin(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, unmount(filepath.Join(dir, e.Name())))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// unmount takes away every mount on path; none is no error.
func unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil: // another may lie below
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil
		default:
			return fmt.Errorf("cannot unmount %s: %w", path, err)
		}
	}
}

// pinned reports whether a namespace file is still held at path.
func pinned(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// inNamespaces runs f on a thread that has joined namespaces pinned in dir.
func inNamespaces(dir string, kinds []nsKind, f func() error) error {
	return onThrowawayThread(func() error {
		for _, k := range kinds {
			fd, err := unix.Open(filepath.Join(dir, string(k)), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("cannot open %s namespace: %w", k, err)
			}
			err = unix.Setns(fd, k.cloneFlag())
			unix.Close(fd)
			if err != nil {
				return fmt.Errorf("cannot join %s namespace: %w", k, err)
			}
		}
		return f()
	})
}

// onThrowawayThread runs f on a thread that ends with it, so that f may change
// what belongs to a thread. f must not start goroutines that rely on that.
func onThrowawayThread(f func() error) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread never ends and stands for the process in
			// /proc/self. While it is held here, the work gets another.
			defer runtime.UnlockOSThread()
			ended <- onThrowawayThread(f)
			return
		}
		ended <- f() // not unlocked: the thread ends with this goroutine
	}()
	return <-ended
}
