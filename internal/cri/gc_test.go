package cri

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/store"
)

// imageCollector remembers which images it was told are in use.
type imageCollector struct {
	mu   sync.Mutex
	seen []string // of those it asked for
	t    imagestore.Thresholds
	err  error
}

func (c *imageCollector) Collect(_ context.Context, inUse func(string) bool, t imagestore.Thresholds) (imagestore.Collected, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.t = nil, t
	for _, id := range []string{"sha256:" + strings.Repeat("ab", 32), "sha256:other", ""} {
		if inUse(id) {
			c.seen = append(c.seen, id)
		}
	}
	return imagestore.Collected{}, c.err
}

func (f *fixture) left() (sandboxes, containers []string) {
	for _, sb := range f.allSandboxes() {
		sandboxes = append(sandboxes, sb.config.GetMetadata().GetName())
	}
	for _, c := range f.allContainers() {
		containers = append(containers, c.config.GetMetadata().GetName())
	}
	return sandboxes, containers
}

// What lives, and what is not too old or too many, stays.
func TestOnlyTheDeadAreCollected(t *testing.T) {
	f := newFixture(t)
	sandbox := func(name string) string {
		id, err := f.RunPodSandbox(t.Context(), sandboxConfig(name), "")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	container := func(sandboxID, name string, state store.ContainerState) string {
		config := containerConfig(name)
		id, err := f.CreateContainer(t.Context(), sandboxID, config, nil)
		if err != nil {
			t.Fatal(err)
		}
		if state == store.ContainerCreated {
			return id
		}
		if err := f.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if state == store.ContainerExited {
			if err := f.StopContainer(t.Context(), id, 0); err != nil {
				t.Fatal(err)
			}
		}
		return id
	}
	live := sandbox("live")
	container(live, "running", store.ContainerRunning)
	container(live, "created", store.ContainerCreated)
	container(live, "ended", store.ContainerExited)
	stopped := sandbox("stopped")
	container(stopped, "in-stopped", store.ContainerExited)
	container(stopped, "never-started", store.ContainerCreated)
	if err := f.StopPodSandbox(t.Context(), stopped); err != nil {
		t.Fatal(err)
	}
	images := &imageCollector{}
	collect := func(age time.Duration, l DeadLimits) (sandboxes, containers []string) {
		t.Helper()
		g := GC{Dead: l, Images: images}
		if err := g.validate(); err != nil {
			t.Fatal(err)
		}
		if err := f.collect(t.Context(), g, time.Now().Add(age)); err != nil {
			t.Fatal(err)
		}
		return f.left()
	}
	all := []string{"running", "created", "ended", "in-stopped", "never-started"}
	for name, l := range map[string]DeadLimits{
		"no limit": {}, "too young": {MaxAge: time.Hour}, "all fit": {Sandboxes: 1, Containers: 2, PerContainer: 1},
	} {
		if sandboxes, containers := collect(30*time.Minute, l); len(sandboxes) != 2 || !slices.Equal(containers, all) {
			t.Errorf("%s: left are %q and %q", name, sandboxes, containers)
		}
	}
	if diff := cmp.Diff([]string{"sha256:" + strings.Repeat("ab", 32)}, images.seen); diff != "" || images.t != imagestore.DefaultThresholds {
		t.Errorf("images in use: %s; limits %+v", diff, images.t)
	}
	// A sandbox that was stopped is as old as its end, also for another process.
	f.reopen(t)
	sandboxes, containers := collect(2*time.Hour, DeadLimits{MaxAge: time.Hour})
	if diff := cmp.Diff([][]string{{"live"}, {"running", "created"}}, [][]string{sandboxes, containers}); diff != "" {
		t.Errorf("left: %s", diff)
	}
	images.err = errors.New("no disk")
	if err := f.collect(t.Context(), GC{Images: images}, time.Now()); !errors.Is(err, images.err) {
		t.Errorf("the error of the image store is lost: %v", err)
	}
}

func TestCollectionGoesOnByItselfIfAsked(t *testing.T) {
	f := newFixture(t)
	sb, id := f.runOne(t)
	if err := f.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	config := containerConfig("again")
	if _, err := f.CreateContainer(t.Context(), sb, config, nil); err != nil {
		t.Fatal(err)
	}
	g := GC{Every: time.Millisecond, Dead: DeadLimits{MaxAge: time.Nanosecond}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.keepCollecting(ctx, g) }()
	for {
		if _, containers := f.left(); slices.Equal(containers, []string{"again"}) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Image volumes are in use as the images of containers are.
func TestImagesInUse(t *testing.T) {
	f := newFixture(t)
	id := f.createOne(t)
	c, err := f.container(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.changeContainer(c, func(r *store.Container) { r.VolumeImages = map[string]string{"/v": "sha256:other"} }); err != nil {
		t.Fatal(err)
	}
	inUse := f.imagesInUse()
	if !inUse(f.images.image.ID) || !inUse("sha256:other") || inUse("sha256:third") {
		t.Error("images of containers or volumes are not in use, or others are")
	}
}

func TestGCConfig(t *testing.T) {
	for name, g := range map[string]GC{
		"Every":       {Every: -1},
		"MinAge":      {Dead: DeadLimits{MinAge: -1}},
		"Sandboxes":   {Dead: DeadLimits{Sandboxes: -1}},
		"ImageLimits": {ImageLimits: imagestore.Thresholds{HighPercent: 80, LowPercent: 90}},
	} {
		_, err := New(Config{Run: filepath.Join(t.TempDir(), "run"), Shim: newFakeShim(), Images: &fakeImages{}, Network: newFakeNetwork(), GC: g})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What counts is when a sandbox was stopped, not when it was made or what in it
// ended last.
func TestSandboxIsDeadSinceItWasStopped(t *testing.T) {
	f := newFixture(t)
	id, err := f.RunPodSandbox(t.Context(), sandboxConfig("old"), "")
	if err != nil {
		t.Fatal(err)
	}
	sb, err := f.sandbox(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.changeSandbox(sb, func(r *store.Sandbox) { r.CreatedAt = r.CreatedAt.Add(-9 * time.Hour) }); err != nil {
		t.Fatal(err)
	}
	if err := f.StopPodSandbox(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	f.reopen(t)
	g := GC{Dead: DeadLimits{MaxAge: time.Hour}}
	for age, want := range map[time.Duration]int{0: 1, 59 * time.Minute: 1} {
		if err := f.collect(t.Context(), g, time.Now().Add(age)); err != nil {
			t.Fatal(err)
		}
		if sandboxes, _ := f.left(); len(sandboxes) != want {
			t.Errorf("%v after its stop %d sandboxes are left, want %d", age, len(sandboxes), want)
		}
	}
	if err := f.collect(t.Context(), g, time.Now().Add(61*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if sandboxes, _ := f.left(); len(sandboxes) != 0 {
		t.Errorf("left: %q", sandboxes)
	}
}
