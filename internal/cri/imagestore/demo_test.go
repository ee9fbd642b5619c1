package imagestore

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDemoImage(t *testing.T) {
	s := open(t, nil)
	binary := write(t, "berth-demo", []byte("#!binary one"))
	img, err := s.DemoImage(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{DemoName}, img.Tags); diff != "" || !img.Pinned || img.Spec.Config.Entrypoint[0] != "/berth-demo" {
		t.Errorf("%s %+v", diff, img)
	}
	mounts, err := s.Prepare(t.Context(), "c", img, SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	withMounted(t, mounts, func(root string) {
		info, err := os.Stat(filepath.Join(root, "tmp"))
		if err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
			t.Errorf("/tmp: %v %v", info.Mode(), err)
		}
		if got, err := os.ReadFile(filepath.Join(root, "berth-demo")); err != nil || string(got) != "#!binary one" {
			t.Errorf("binary: %q %v", got, err)
		}
		if to, err := os.Readlink(filepath.Join(root, "bin/cat")); err != nil || to != "/berth-demo" {
			t.Errorf("cat: %q %v", to, err)
		}
	})

	t.Run("is not made again for the same file", func(t *testing.T) {
		before, _ := s.images.Get(s.context(t.Context()), DemoName)
		if _, err := s.DemoImage(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
		after, _ := s.images.Get(s.context(t.Context()), DemoName)
		if !before.UpdatedAt.Equal(after.UpdatedAt) {
			t.Error("it was made again")
		}
	})
	t.Run("same content gives the same digest anywhere", func(t *testing.T) {
		other := open(t, nil)
		copied := write(t, "copy", []byte("#!binary one"))
		if err := os.Chtimes(copied, time.Unix(5, 0), time.Unix(5, 0)); err != nil {
			t.Fatal(err)
		}
		again, err := other.DemoImage(t.Context(), copied)
		if err != nil || again.Target != img.Target {
			t.Errorf("%s, %v; want %s", again.Target, err, img.Target)
		}
	})
	t.Run("stays when images are pruned", func(t *testing.T) {
		if _, err := s.Prune(t.Context(), true, nothingInUse); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), "berth.local/demo"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a new binary replaces the old one", func(t *testing.T) {
		if err := os.WriteFile(binary, []byte("#!binary two"), 0o600); err != nil {
			t.Fatal(err)
		}
		fresh, err := s.DemoImage(t.Context(), binary)
		if err != nil || fresh.ID == img.ID {
			t.Fatalf("%s %v", fresh.ID, err)
		}
		if err := s.Release(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
			t.Fatal(err)
		}
		if got := leftovers(t, s); got["layers"] != 1 || got["blobs"] != 3 {
			t.Errorf("left: %v", got)
		}
	})
	t.Run("a missing binary is named", func(t *testing.T) {
		if _, err := s.DemoImage(t.Context(), "/no/berth-demo"); err == nil {
			t.Error("no error")
		}
	})
}

func TestDemoLayerIsAValidArchive(t *testing.T) {
	var buf bytes.Buffer
	if err := writeDemoLayer(&buf, bytes.NewReader([]byte("x")), 1); err != nil {
		t.Fatal(err)
	}
	modes := map[string]int64{}
	for tr := tar.NewReader(&buf); ; {
		h, err := tr.Next()
		if err != nil {
			break
		}
		modes[h.Name] = h.Mode
	}
	for name, want := range map[string]int64{"tmp/": 0o1777, "berth-demo": 0o755, "etc/passwd": 0o644, "bin/true": 0o777} {
		if modes[name] != want {
			t.Errorf("%s has mode %o, want %o", name, modes[name], want)
		}
	}
}
