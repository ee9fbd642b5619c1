package integration

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/testutil/images"
)

var emptyIndex = empty.Index

func header(name string, mode int64, size int) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(size)}
}

func program(name string, content []byte) images.Entry {
	return images.Entry{Header: header(name, 0o755, len(content)), Content: content}
}

// smallDisk is a folder on a file system of that size.
func smallDisk(t *testing.T, sizeBytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size="+strconv.Itoa(sizeBytes)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	})
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o711); err != nil { //nolint:gosec // containers' users pass through it
		t.Fatal(err)
	}
	return root
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for {
		_, err := f.Write(block)
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func mountTmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("late", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	})
}

// shareMount lets later mounts below dir propagate, as those of a machine whose
// init is systemd do.
func shareMount(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
}
