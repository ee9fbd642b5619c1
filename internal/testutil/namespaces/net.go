package namespaces

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// NewNet makes a network namespace that is pinned to a file until the test ends
// or EndNet.
func NewNet(t testing.TB) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "net")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { EndNet(path) })
	return path
}

// EndNet unpins a network namespace. It may be called more than once.
func EndNet(path string) { _ = unix.Unmount(path, unix.MNT_DETACH) }

// WithinNet runs f in a network namespace. Sockets that f opens stay there.
func WithinNet(path string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		ns, err := netns.GetFromPath(path)
		if err == nil {
			defer ns.Close()
			err = netns.Set(ns)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
