package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A container may make devices and pipes in its volume. The node looks at them
// and does not open them: opening alone can have an effect.
func TestDeviceInAVolumeIsNotOpened(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a device")
	}
	dir := t.TempDir()
	// A number that no driver has: opening it would fail with ENXIO.
	if err := unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(254, 254))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]string{"device": "character device", "pipe": "named pipe", ".": "directory"} {
		if _, err := ReadFile(dir, name); err == nil || !strings.Contains(err.Error(), "is a "+kind) {
			t.Errorf("%s: error %v, want that it is a %s", name, err, kind)
		}
	}
}
