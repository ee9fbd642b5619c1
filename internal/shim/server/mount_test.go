package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// An overlay with more layers than fit into a page of options as they are is
// mounted all the same, on kernels before 6.7 too: by mount(2).
func TestOverlayOfManyLayers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	for _, layers := range []int{120, 400} {
		root := filepath.Join(t.TempDir(), strings.Repeat("long", 20), "snapshots")
		var lower []string
		for i := range layers {
			dir := filepath.Join(root, fmt.Sprint(i), "fs")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("of-", i)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			lower = append(lower, dir)
		}
		upper, work := filepath.Join(root, "new", "fs"), filepath.Join(root, "new", "work")
		for _, dir := range []string{upper, work} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		target := filepath.Join(t.TempDir(), "rootfs")
		here, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		err = mountRootfs(target, []*shimpb.Mount{{Type: "overlay", Source: "overlay", Options: []string{
			"index=off", "workdir=" + work, "upperdir=" + upper, "lowerdir=" + strings.Join(lower, ":"), "nodev",
		}}})
		if err != nil {
			t.Fatalf("%d layers: %v", layers, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
		for i := range layers {
			if _, err := os.Stat(filepath.Join(target, fmt.Sprint("of-", i))); err != nil {
				t.Errorf("%d layers: one is missing: %v", layers, err)
			}
		}
		if err := os.WriteFile(filepath.Join(target, "written"), nil, 0o644); err != nil {
			t.Errorf("%d layers: %v", layers, err)
		}
		if _, err := os.Stat(filepath.Join(upper, "written")); err != nil {
			t.Errorf("%d layers: a file was written elsewhere: %v", layers, err)
		}
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, " "+target+" ") && (strings.Contains(line, "lowerdir+=") || !strings.Contains(line, "nodev")) {
				t.Errorf("%d layers: mounted in another way: %.200s…", layers, line)
			}
		}
		if now, err := os.Getwd(); err != nil || now != here {
			t.Errorf("the working directory has become %s, %v", now, err)
		}
	}
}
