package imagestore

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berth-run/berth/internal/testutil/images"
)

// open opens a store in its own folder and closes it with the test.
func open(t *testing.T, change func(*Config)) *Store {
	t.Helper()
	return openAt(t, t.TempDir(), change)
}

func openAt(t *testing.T, root string, change func(*Config)) *Store {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts overlayfs")
	}
	cfg := Config{
		Root: root, RetryDelay: time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Registries: RegistryConfig{DockerConfigDir: "-"},
	}
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// pull pulls without credentials and progress.
func pull(t *testing.T, s *Store, ref string) Image {
	t.Helper()
	img, err := s.Pull(t.Context(), ref, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// contentOf mounts a snapshot of the image and reads all its files.
func contentOf(t *testing.T, s *Store, img Image) images.Files {
	t.Helper()
	key := "content-" + img.ID
	mounts, err := s.View(t.Context(), key, img, SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Release(context.WithoutCancel(t.Context()), key); err != nil {
			t.Error(err)
		}
	}()
	return filesOf(t, mounts)
}

func filesOf(t *testing.T, mounts []mount.Mount) images.Files {
	t.Helper()
	found := images.Files{}
	withMounted(t, mounts, func(root string) {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			rel, _ := filepath.Rel(root, p)
			found[rel], err = os.ReadFile(p)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return found
}

// withMounted mounts at a temporary place for the time of the call.
func withMounted(t *testing.T, mounts []mount.Mount, use func(root string)) {
	t.Helper()
	dir := t.TempDir()
	if err := mount.All(mounts, dir); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mount.UnmountAll(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	use(dir)
}

// leftovers counts what the store holds, for leak checks.
func leftovers(t *testing.T, s *Store) map[string]int {
	t.Helper()
	count := func(glob string) int {
		found, err := filepath.Glob(filepath.Join(s.cfg.Root, glob))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	leases, err := s.leases.List(s.context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]int{
		"blobs": count("content/blobs/sha256/*"), "ingests": count("content/ingest/*"),
		"layers": count("snapshots/*/snapshots/*"), "leases": len(leases),
	}
}

func nothingInUse(string) bool { return false }

var never = Thresholds{HighPercent: 100}

func TestPullTagAndDigestShowTheSameFiles(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	want := images.Text(map[string]string{"etc/os": "test", "a/b/c": "deep"})
	built := images.Image(t, images.Layer(t, want))
	tag := registry.Push("team/app:v1", built)
	s := open(t, nil)

	var seen []Progress
	img, err := s.Pull(t.Context(), tag, nil, func(p Progress) { seen = append(seen, p) })
	if err != nil {
		t.Fatal(err)
	}
	config, _ := built.ConfigName()
	manifest, _ := built.Digest()
	repo := strings.TrimSuffix(tag, ":v1")
	if img.ID != config.String() || img.Target.String() != manifest.String() {
		t.Errorf("id %s target %s, want %s %s", img.ID, img.Target, config, manifest)
	}
	if diff := cmp.Diff([]string{tag}, img.Tags); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{repo + "@" + manifest.String()}, img.Digests); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, contentOf(t, s, img)); diff != "" {
		t.Error(diff)
	}
	last := seen[len(seen)-1]
	if last.Phase != Done || last.TotalBytes == 0 || last.DoneBytes != last.TotalBytes || len(last.Layers) != 1 || last.Ref != tag {
		t.Errorf("last progress is %+v", last)
	}

	byDigest := pull(t, s, repo+"@"+manifest.String())
	if diff := cmp.Diff(img, byDigest, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "LastUsed" }, cmp.Ignore())); diff != "" {
		t.Error(diff)
	}
	for _, ref := range []string{tag, repo + "@" + manifest.String(), img.ID, img.ID[7:], img.ID[:20], img.ID[7:19]} {
		if got, err := s.Get(t.Context(), ref); err != nil || got.ID != img.ID {
			t.Errorf("Get(%q) = %s, %v", ref, got.ID, err)
		}
	}
	for ref, want := range map[string]error{
		"busybox": ErrNotFound, "0123456789ab": ErrNotFound, repo + ":v2": ErrNotFound, "Upper": ErrInvalidReference, "": ErrInvalidReference,
	} {
		if _, err := s.Get(t.Context(), ref); !errors.Is(err, want) {
			t.Errorf("Get(%q) = %v, want %v", ref, err, want)
		}
	}
}

func TestLayersAreStackedAsTheImageSays(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	for _, snapshotter := range []string{overlayName, nativeName} {
		t.Run(snapshotter, func(t *testing.T) {
			s := open(t, func(c *Config) { c.Snapshotter = snapshotter })
			for seed := range uint64(3) {
				layers, want := images.Random(t, seed, 5, 3000)
				img := pull(t, s, registry.Push("random:latest", images.Image(t, layers...)))
				if diff := cmp.Diff(want, contentOf(t, s, img)); diff != "" {
					t.Errorf("seed %d: %s", seed, diff)
				}
			}
		})
	}
}

func TestOpaqueFolderHidesLowerFiles(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	s := open(t, nil)
	img := pull(t, s, registry.Push("opaque:latest", images.Image(t,
		images.Layer(t, images.Text(map[string]string{"d/a": "1", "d/b": "2", "e": "3"})),
		images.Layer(t, images.Files{"d/": nil, "d/c": []byte("4")}),
	)))
	if diff := cmp.Diff(images.Text(map[string]string{"d/c": "4", "e": "3"}), contentOf(t, s, img)); diff != "" {
		t.Error(diff)
	}
}

func TestImageWithoutLayers(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	s := open(t, nil)
	img := pull(t, s, registry.Push("scratch:latest", images.Image(t)))
	mounts, err := s.Prepare(t.Context(), "c", img, SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := filesOf(t, mounts); len(got) != 0 {
		t.Errorf("an empty image has files %v", got)
	}
}

func TestOnlyOneProcessOpensAStore(t *testing.T) {
	s := open(t, nil)
	if _, err := Open(Config{Root: s.cfg.Root}); !errors.Is(err, ErrInUse) {
		t.Errorf("second Open: %v", err)
	}
}

func TestConfigListsAllProblems(t *testing.T) {
	_, err := Open(Config{MaxParallel: -1, Snapshotter: "zfs"})
	for _, want := range []string{"Root", "MaxParallel", "zfs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %s", err, want)
		}
	}
}

func TestCallsAfterCloseFail(t *testing.T) {
	s, err := Open(Config{Root: t.TempDir(), Snapshotter: nativeName})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("List: %v", err)
	}
	if _, err := s.Pull(t.Context(), "busybox", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Pull: %v", err)
	}
}

func TestNormalize(t *testing.T) {
	const sum = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for ref, want := range map[string]string{
		"busybox":                    "docker.io/library/busybox:latest",
		"me/app:1":                   "docker.io/me/app:1",
		"localhost:5000/app":         "localhost:5000/app:latest",
		"registry.k8s.io/pause:3.10": "registry.k8s.io/pause:3.10",
		"index.docker.io/library/x":  "docker.io/library/x:latest",
		"busybox@" + sum:             "docker.io/library/busybox@" + sum,
		"busybox:1.36@" + sum:        "docker.io/library/busybox@" + sum,
		"berth.local/demo":           DemoName,
	} {
		if got, err := Normalize(ref); err != nil || got != want {
			t.Errorf("Normalize(%q) = %q, %v; want %q", ref, got, err, want)
		}
	}
	_, err := Normalize("Busybox")
	if !errors.Is(err, ErrInvalidReference) || !strings.Contains(err.Error(), `did you mean "busybox"`) {
		t.Errorf("upper case: %v", err)
	}
}

// layersOf makes descriptors: name, size, name, size …
func layersOf(pairs ...any) (layers []imgspec.Descriptor) {
	for i := 0; i < len(pairs); i += 2 {
		layers = append(layers, imgspec.Descriptor{
			MediaType: imgspec.MediaTypeImageLayer, Digest: digest.FromString(pairs[i].(string)), Size: int64(pairs[i+1].(int)),
		})
	}
	return layers
}
