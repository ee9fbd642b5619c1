package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

func openStore(t *testing.T, root string) *imagestore.Store {
	t.Helper()
	s, err := imagestore.Open(imagestore.Config{Root: filepath.Join(root, "images")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func demoProgram(t *testing.T, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth-demo")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheDemoImageIsMadeWhenItIsNeeded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes an image store")
	}
	s := openStore(t, t.TempDir())
	makeDemo := demoMaker(s, demoProgram(t, 1000))
	if err := makeDemo(t.Context(), "berth.local/other:latest"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), imagestore.DemoName); !errors.Is(err, imagestore.ErrNotFound) {
		t.Fatalf("the demo image was made for another: %v", err)
	}
	for range 2 {
		if err := makeDemo(t.Context(), "berth.local/demo:latest"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Get(t.Context(), imagestore.DemoName); err != nil {
		t.Error(err)
	}
}

func TestAFullDiskIsNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a small filesystem")
	}
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, 0) })
	s := openStore(t, disk)
	err := demoMaker(s, demoProgram(t, 8<<20))(t.Context(), "berth.local/demo")
	if !errors.Is(err, imagestore.ErrNoSpace) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 120 {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
