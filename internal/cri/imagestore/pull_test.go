package imagestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	"go.uber.org/goleak"

	"github.com/berth-run/berth/internal/testutil/images"
)

func layerDigest(t *testing.T, l v1.Layer) string {
	t.Helper()
	d, err := l.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// big makes a layer that does not compress, so that it arrives in many reads.
func big(t *testing.T, seed uint64, bytes int) v1.Layer {
	t.Helper()
	content := make([]byte, bytes)
	x := seed*2862933555777941757 + 3037000493
	for i := range content {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		content[i] = byte(x)
	}
	return images.Layer(t, images.Files{"big": content})
}

func TestDamagedTransfersAreRepeated(t *testing.T) {
	layer := big(t, 1, 300_000)
	built := images.Image(t, layer)
	manifest, _ := built.Digest()
	config, _ := built.ConfigName()
	cases := map[string]images.Fault{
		"layer cut off":      {Kind: images.Truncate, Target: "blobs", Reference: layerDigest(t, layer), Times: 1},
		"layer changed":      {Kind: images.Corrupt, Target: "blobs", Reference: layerDigest(t, layer), Times: 1},
		"config changed":     {Kind: images.Corrupt, Target: "blobs", Reference: config.String(), Times: 1},
		"manifest changed":   {Kind: images.Corrupt, Target: "manifests", Reference: manifest.String(), Times: 1},
		"manifest cut off":   {Kind: images.Truncate, Target: "manifests", Reference: manifest.String(), Times: 1},
		"server error":       {Kind: images.Status, Target: "blobs", Code: http.StatusInternalServerError, Times: 2},
		"too many requests":  {Kind: images.Status, Target: "blobs", Code: http.StatusTooManyRequests, Times: 1},
		"error on resolving": {Kind: images.Status, Target: "manifests", Code: http.StatusServiceUnavailable, Times: 1},
	}
	for name, fault := range cases {
		t.Run(name, func(t *testing.T) {
			registry := images.NewRegistry(t, images.RegistryOptions{})
			ref := registry.Push("app:v1", built)
			registry.Misbehave(fault)
			s := open(t, nil)
			img := pull(t, s, ref)
			if got := contentOf(t, s, img); len(got["big"]) != 300_000 {
				t.Errorf("file has %d bytes", len(got["big"]))
			}
		})
	}
}

func TestDamageThatStaysIsAClearErrorAndARetryWorks(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	layer := big(t, 2, 100_000)
	ref := registry.Push("app:v1", images.Image(t, layer))
	registry.Misbehave(images.Fault{Kind: images.Corrupt, Target: "blobs", Reference: layerDigest(t, layer)})
	s := open(t, nil)
	_, err := s.Pull(t.Context(), ref, nil, nil)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), layerDigest(t, layer)) {
		t.Fatalf("got %v", err)
	}
	if all, _ := s.List(t.Context()); len(all) != 0 {
		t.Errorf("a broken image is listed: %v", all)
	}
	registry.Behave()
	pull(t, s, ref)
}

func TestInterruptedFetchGoesOnWhereItStopped(t *testing.T) {
	for name, o := range map[string]images.RegistryOptions{"ranges": {}, "no ranges": {NoRange: true}} {
		t.Run(name, func(t *testing.T) { interruptedFetch(t, images.NewRegistry(t, o), !o.NoRange) })
	}
}

func interruptedFetch(t *testing.T, registry *images.Registry, ranges bool) {
	layer := big(t, 3, 4_000_000)
	ref := registry.Push("app:v1", images.Image(t, layer))
	reached := make(chan struct{})
	registry.Misbehave(images.Fault{Kind: images.Stall, Target: "blobs", Reference: layerDigest(t, layer), Times: 1, Reached: reached})
	s := open(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Pull(ctx, ref, nil, nil)
		ended <- err
	}()
	<-reached
	waitForIngest(t, s.cfg.Root, 1_000_000)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
		t.Fatal(err)
	}
	if got := leftovers(t, s); got["ingests"] != 1 {
		t.Errorf("what was fetched is gone before the retry: %v", got)
	}
	sent := registry.BlobBytes()
	img := pull(t, s, ref)
	if sent = registry.BlobBytes() - sent; ranges && sent > 3_200_000 {
		t.Errorf("the retry fetched %d bytes again", sent)
	}
	if got := contentOf(t, s, img); len(got["big"]) != 4_000_000 {
		t.Errorf("file has %d bytes", len(got["big"]))
	}
	if got := leftovers(t, s); got["ingests"] != 0 || got["leases"] != 0 {
		t.Errorf("left after the retry: %v", got)
	}
}

// waitForIngest waits until a partly written blob has at least that many bytes.
func waitForIngest(t *testing.T, root string, bytes int64) {
	t.Helper()
	for t.Context().Err() == nil {
		found, _ := filepath.Glob(filepath.Join(root, "content/ingest/*/data"))
		for _, f := range found {
			if info, err := os.Stat(f); err == nil && info.Size() >= bytes {
				return
			}
		}
	}
}

func TestDamagedStoredBlobsAreFetchedAgain(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	layer := big(t, 4, 100_000)
	built := images.Image(t, layer)
	ref := registry.Push("app:v1", built)
	manifest, _ := built.Digest()
	config, _ := built.ConfigName()
	for _, victim := range []string{layerDigest(t, layer), manifest.String(), config.String()} {
		for _, damage := range []string{"flip", "truncate"} {
			t.Run(victim+"/"+damage, func(t *testing.T) {
				root := t.TempDir()
				s := openAt(t, root, nil)
				img := pull(t, s, ref)
				// As if the machine lost power: a record, but not the bytes, and no snapshot.
				blob := filepath.Join(root, "content/blobs/sha256", strings.TrimPrefix(victim, "sha256:"))
				raw, err := os.ReadFile(blob)
				if err != nil {
					t.Fatal(err)
				}
				if damage == "flip" {
					raw[len(raw)/2] ^= 1
				} else {
					raw = raw[:len(raw)/2]
				}
				if err := os.Chmod(blob, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(blob, raw, 0o600); err != nil {
					t.Fatal(err)
				}
				s.described, s.stacked = map[digest.Digest]*facts{}, map[string]bool{}
				if err := s.snapshotter.Remove(s.context(t.Context()), img.ChainID); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Get(t.Context(), ref); !errors.Is(err, ErrNotFound) {
					t.Errorf("Get of a damaged image: %v", err)
				}
				again := pull(t, s, ref)
				if got := contentOf(t, s, again); len(got["big"]) != 100_000 {
					t.Errorf("file has %d bytes", len(got["big"]))
				}
			})
		}
	}
}

func TestConcurrentPullsShareTheWork(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	shared, one, two := big(t, 5, 200_000), big(t, 6, 1000), big(t, 7, 1000)
	a := registry.Push("app-a:v1", images.Image(t, shared, one))
	b := registry.Push("app-b:v1", images.Image(t, shared, two))
	s := open(t, func(c *Config) { c.MaxParallel = 2 })
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ref := a
			if i%2 == 1 {
				ref = b
			}
			calls := 0
			if _, err := s.Pull(t.Context(), ref, nil, func(Progress) { calls++ }); err != nil {
				t.Error(err)
			}
			if calls == 0 {
				t.Error("no progress was reported")
			}
		})
	}
	wg.Wait()
	if n := registry.Gets("blobs", layerDigest(t, shared)); n != 1 {
		t.Errorf("the shared layer was fetched %d times", n)
	}
	if got := leftovers(t, s); got["leases"] != 0 || got["layers"] != 3 {
		t.Errorf("left: %v", got)
	}
}

// One caller gives up; the other still gets the image.
func TestCallerThatGivesUpDoesNotStopOthers(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	layer := big(t, 8, 100_000)
	ref := registry.Push("app:v1", images.Image(t, layer))
	release, reached := make(chan struct{}), make(chan struct{})
	registry.Misbehave(images.Fault{
		Kind: images.Stall, Target: "blobs", Reference: layerDigest(t, layer), Times: 1, Release: release, Reached: reached,
	})
	s := open(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	impatient, patient := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.Pull(ctx, ref, nil, nil)
		impatient <- err
	}()
	<-reached
	go func() {
		_, err := s.Pull(t.Context(), ref, nil, nil)
		patient <- err
	}()
	for joined := false; !joined; {
		s.mu.Lock()
		joined = s.flights[ref] != nil && s.flights[ref].waiters == 2
		s.mu.Unlock()
	}
	cancel()
	if err := <-impatient; !errors.Is(err, context.Canceled) {
		t.Errorf("impatient: %v", err)
	}
	close(release)
	if err := <-patient; err != nil {
		t.Errorf("patient: %v", err)
	}
}

func TestCloseStopsPulls(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	layer := big(t, 9, 100_000)
	ref := registry.Push("app:v1", images.Image(t, layer))
	reached := make(chan struct{})
	registry.Misbehave(images.Fault{Kind: images.Stall, Target: "blobs", Reference: layerDigest(t, layer), Reached: reached})
	s, err := Open(Config{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Pull(t.Context(), ref, nil, nil)
		ended <- err
	}()
	<-reached
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the pull succeeded")
	}
}

func TestPlatforms(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	other := "s390x"
	here := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "here"})))
	there := images.ImageFor(t, other, images.Layer(t, images.Text(map[string]string{"a": "there"})))
	s := open(t, nil)

	arch := func() string { c, _ := here.ConfigFile(); return c.Architecture }()
	multi := registry.PushIndex("multi:v1", images.Index(t, map[string]v1.Image{arch: here, other: there}))
	img := pull(t, s, multi)
	if diff := cmp.Diff(images.Text(map[string]string{"a": "here"}), contentOf(t, s, img)); diff != "" {
		t.Error(diff)
	}
	thereDigest, _ := there.Digest()
	if n := registry.Gets("manifests", thereDigest.String()); n != 0 {
		t.Error("the manifest for another platform was fetched")
	}

	foreign := registry.PushIndex("foreign:v1", images.Index(t, map[string]v1.Image{other: there}))
	single := registry.Push("single:v1", there)
	for _, ref := range []string{foreign, single} {
		_, err := s.Pull(t.Context(), ref, nil, nil)
		if !errors.Is(err, ErrPlatform) || !strings.Contains(err.Error(), "linux/"+other) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	artifact := mutate.MediaType(images.Image(t), types.OCIManifestSchema1)
	artifact = mutate.ConfigMediaType(artifact, "application/vnd.cncf.helm.config.v1+json")
	chart, err := mutate.AppendLayers(artifact, static.NewLayer([]byte("chart"), "application/vnd.cncf.helm.chart.content.v1.tar+gzip"))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, nil)
	for ref, want := range map[string]error{
		registry.Host + "/no/such:v1":         ErrMissing,
		registry.Push("helm/chart:v1", chart): ErrNotImage,
		"not a reference":                     ErrInvalidReference,
	} {
		if _, err := s.Pull(t.Context(), ref, nil, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", ref, err, want)
		}
	}
	_, err = s.Pull(t.Context(), "127.0.0.1:1/x", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a registry that is down: %v", err)
	}
	if got := leftovers(t, s); got["layers"] != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestErrorsSayEachThingOnce(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	ref := registry.Push("app:v1", images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "1"}))))
	private := images.NewRegistry(t, images.RegistryOptions{Auth: images.BasicAuth, User: "a", Password: "b"})
	s := open(t, nil)
	pull := func(ref string) string {
		t.Helper()
		_, err := s.Pull(t.Context(), ref, nil, nil)
		if err == nil {
			t.Fatalf("%s was pulled", ref)
		}
		return err.Error()
	}
	if got, want := pull(registry.Host+"/no/such:v1"), `cannot pull image "`+registry.Host+`/no/such:v1": not found in the registry`; got != want {
		t.Errorf("a missing image: %s\nwant %s", got, want)
	}
	registry.Misbehave(images.Fault{Kind: images.Status, Target: "blobs", Code: http.StatusNotFound})
	if got := pull(ref); strings.Count(got, "not found") != 1 || !strings.Contains(got, "not found in the registry: cannot fetch sha256:") {
		t.Errorf("a missing part: %s", got)
	}
	got := pull(private.Host + "/app:v1")
	if strings.Count(got, "access denied") != 1 || strings.Count(got, "credentials") > 2 || strings.Contains(got, "pull access denied") {
		t.Errorf("a private image: %s", got)
	}
}

func TestStalledRegistryIsAskedAgain(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	layer := big(t, 10, 400_000)
	built := images.Image(t, layer)
	ref := registry.Push("app:v1", built)
	manifest, _ := built.Digest()
	registry.Misbehave(images.Fault{Kind: images.Stall, Target: "blobs", Reference: layerDigest(t, layer), Times: 1})
	registry.Misbehave(images.Fault{Kind: images.Stall, Target: "manifests", Reference: manifest.String(), Times: 1})
	s := open(t, func(c *Config) { c.StallTimeout = 300 * time.Millisecond })
	pull(t, s, ref)

	registry.Misbehave(images.Fault{Kind: images.Stall, Target: "manifests", Reference: manifest.String()})
	stuck := open(t, func(c *Config) { c.StallTimeout = 20 * time.Millisecond })
	if _, err := stuck.Pull(t.Context(), ref, nil, nil); !errors.Is(err, ErrStalled) {
		t.Errorf("got %v", err)
	}
}

// Pulls, snapshots and failures leave no goroutine, file or mount behind when
// the store is closed.
func TestNothingLeaks(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	layer := big(t, 11, 300_000)
	good := registry.Push("good:v1", images.Image(t, layer))
	bad := big(t, 12, 300_000)
	broken := registry.Push("broken:v1", images.Image(t, layer, bad))
	registry.Misbehave(images.Fault{Kind: images.Truncate, Target: "blobs", Reference: layerDigest(t, bad)})
	round := func() {
		s, err := Open(Config{Root: t.TempDir(), RetryDelay: time.Millisecond, Registries: RegistryConfig{DockerConfigDir: "-"}})
		if err != nil {
			t.Fatal(err)
		}
		img := pull(t, s, good)
		contentOf(t, s, img)
		if _, err := s.Pull(t.Context(), broken, nil, nil); err == nil {
			t.Error("a broken image was pulled")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, _ = s.Pull(ctx, broken, nil, nil)
		cancel()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts overlayfs")
	}
	round() // what is started once in a process
	before := goleak.IgnoreCurrent()
	files, mounts := openFiles(t), mountCount(t)
	for range 3 {
		round()
	}
	registry.DropConnections()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	runtime.GC() // closes what containerd's probe for fs-verity leaves to the collector
	runtime.GC()
	if got := mountCount(t); got != mounts {
		t.Errorf("%d mounts, before %d", got, mounts)
	}
	for try := 0; openFiles(t) > files; try++ {
		if try == 1000 {
			t.Fatalf("%d open files, before %d", openFiles(t), files)
		}
		time.Sleep(time.Millisecond) // finalizers run on their own
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func mountCount(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(raw), "/"+t.Name()) // others mount things at the same time
}

func BenchmarkGet(b *testing.B) {
	s, err := Open(Config{Root: b.TempDir(), Snapshotter: nativeName})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := range 50 {
		_, err := s.Put(b.Context(), PutRequest{Name: fmt.Sprintf("image%d", i), Layer: func(w io.Writer) error {
			return writeDemoLayer(w, strings.NewReader(fmt.Sprintf("%04d", i)), 4)
		}})
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := s.Get(b.Context(), "image7"); err != nil {
			b.Fatal(err)
		}
	}
}
