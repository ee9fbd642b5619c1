package imagestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/testutil/images"
)

func smallImage(t *testing.T, s *Store, text string) Image {
	t.Helper()
	registry := images.NewRegistry(t, images.RegistryOptions{})
	return pull(t, s, registry.Push("small:v1", images.Image(t,
		images.Layer(t, images.Text(map[string]string{"a": text})),
		images.Layer(t, images.Text(map[string]string{"b": text})),
	)))
}

func TestSnapshotsAreKeptByKeyAndApart(t *testing.T) {
	for _, kind := range []string{overlayName, nativeName} {
		t.Run(kind, func(t *testing.T) {
			s := open(t, func(c *Config) { c.Snapshotter = kind })
			img := smallImage(t, s, "1")
			one, err := s.Prepare(t.Context(), "one", img, SnapshotOptions{})
			if err != nil {
				t.Fatal(err)
			}
			withMounted(t, one, func(root string) {
				if err := os.WriteFile(filepath.Join(root, "mine"), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			})
			again, err := s.Prepare(t.Context(), "one", img, SnapshotOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(one, again); diff != "" {
				t.Error(diff)
			}
			if got := filesOf(t, again); string(got["mine"]) != "x" {
				t.Errorf("what was written is gone: %v", got)
			}
			two, err := s.Prepare(t.Context(), "two", img, SnapshotOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(images.Text(map[string]string{"a": "1", "b": "1"}), filesOf(t, two)); diff != "" {
				t.Error(diff)
			}
			if _, err := s.Prepare(t.Context(), "one", smallImage(t, s, "2"), SnapshotOptions{}); !errors.Is(err, ErrKeyInUse) {
				t.Errorf("other image under the same key: %v", err)
			}
			view, err := s.View(t.Context(), "view", img, SnapshotOptions{})
			if err != nil {
				t.Fatal(err)
			}
			withMounted(t, view, func(root string) {
				err := os.WriteFile(filepath.Join(root, "x"), nil, 0o600)
				if !errors.Is(err, syscall.EROFS) {
					t.Errorf("a view can be written: %v", err)
				}
			})
			if bytes, inodes, err := s.SnapshotUsage(t.Context(), "one"); err != nil || bytes == 0 || inodes == 0 {
				t.Errorf("usage %d %d %v", bytes, inodes, err)
			}
			listed, err := s.Snapshots(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			keys := []string{}
			for _, l := range listed {
				keys = append(keys, fmt.Sprintf("%s %t %t", l.Key, l.ReadOnly, l.ChainID == img.ChainID))
			}
			if diff := cmp.Diff([]string{"one false true", "two false true", "view true true"}, keys); diff != "" {
				t.Error(diff)
			}
			for _, key := range []string{"one", "one", "two", "view", "never"} {
				if err := s.Release(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
			if listed, _ := s.Snapshots(t.Context()); len(listed) != 0 {
				t.Errorf("left: %v", listed)
			}
			if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
				t.Fatal(err)
			}
			if got := leftovers(t, s)["layers"]; got != 4 {
				t.Errorf("%d layers left, want those of two images", got)
			}
		})
	}
}

func TestManySnapshotsAtOnceWhileGarbageIsCollected(t *testing.T) {
	s := open(t, nil)
	img := smallImage(t, s, "1")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			key := fmt.Sprint(i)
			if _, err := s.Prepare(t.Context(), key, img, SnapshotOptions{}); err != nil {
				t.Error(err)
			}
			if err := s.Release(t.Context(), key); err != nil {
				t.Error(err)
			}
		})
	}
	for range 5 {
		wg.Go(func() {
			if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := s.Get(t.Context(), img.ID); err != nil {
		t.Error(err)
	}
}

func TestIDMappedSnapshot(t *testing.T) {
	mapped := SnapshotOptions{
		UIDMap: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 200_000, Size: 65_536}},
		GIDMap: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 300_000, Size: 65_536}},
	}
	native := open(t, func(c *Config) { c.Snapshotter = nativeName })
	if _, err := native.Prepare(t.Context(), "c", smallImage(t, native, "1"), mapped); !errors.Is(err, ErrIDMapUnsupported) {
		t.Errorf("native: %v", err)
	}
	s := open(t, nil)
	if !s.canMapIDs {
		t.Skip("needs a kernel with id-mapped overlay layers")
	}
	mounts, err := s.Prepare(t.Context(), "c", smallImage(t, s, "1"), mapped)
	if err != nil {
		t.Fatal(err)
	}
	withMounted(t, mounts, func(root string) {
		for _, name := range []string{".", "a", "b"} {
			info, err := os.Stat(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			st := info.Sys().(*syscall.Stat_t)
			if st.Uid != 200_000 || st.Gid != 300_000 {
				t.Errorf("%s belongs to %d:%d", name, st.Uid, st.Gid)
			}
		}
	})
}

func BenchmarkPrepareAndRelease(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: mounts overlayfs")
	}
	s, err := Open(Config{Root: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	binary, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	img, err := s.DemoImage(b.Context(), binary)
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		key := fmt.Sprint(i)
		i++
		if _, err := s.Prepare(b.Context(), key, img, SnapshotOptions{}); err != nil {
			b.Fatal(err)
		}
		if err := s.Release(b.Context(), key); err != nil {
			b.Fatal(err)
		}
	}
}
