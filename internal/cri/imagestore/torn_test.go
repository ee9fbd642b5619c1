package imagestore

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A kill between making something and recording it must not stand in the way of
// the next process, nor stay.
func TestWhatAKillLeavesHalfMadeGoes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts overlayfs")
	}
	for _, kind := range []string{overlayName, nativeName} {
		t.Run(kind, func(t *testing.T) {
			root := t.TempDir()
			choose := func(c *Config) { c.Snapshotter = kind }
			s, err := Open(Config{Root: root, Snapshotter: kind})
			if err != nil {
				t.Fatal(err)
			}
			first := smallImage(t, s, "1")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			folders := filepath.Join(root, "snapshots", kind, "snapshots")
			known, err := os.ReadDir(folders)
			if err != nil {
				t.Fatal(err)
			}
			probe := filepath.Join(root, "multiple-lowerdir-check1", "merged")
			for _, dir := range []string{
				filepath.Join(folders, "new-1", "fs"), filepath.Join(folders, "9", "fs"), probe,
				filepath.Join(root, "content", "ingest", "torn"),
			} {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			// The numbers that the next snapshots would get.
			for id := range 9 {
				dir := filepath.Join(folders, string(rune('1'+id)))
				if _, err := os.Stat(dir); err == nil {
					continue
				}
				if err := os.MkdirAll(filepath.Join(dir, "fs", "stray"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := unix.Mount("tmpfs", probe, "tmpfs", 0, "size=4096"); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "content", "ingest", "torn", "ref"), nil, 0o600); err != nil {
				t.Fatal(err)
			}

			again := openAt(t, root, choose)
			if left, err := os.ReadDir(folders); err != nil || len(left) != len(known) {
				t.Errorf("left are %v, %v, want %v", left, err, known)
			}
			if _, err := os.Lstat(filepath.Dir(probe)); !os.IsNotExist(err) {
				t.Errorf("the probe of the file system is left: %v", err)
			}
			if got := leftovers(t, again)["ingests"]; got != 0 {
				t.Errorf("%d torn blobs are left", got)
			}
			contentOf(t, again, first)
			contentOf(t, again, smallImage(t, again, "2"))
		})
	}
}
