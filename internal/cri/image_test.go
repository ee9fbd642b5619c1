package cri

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/testutil/images"
)

// imageService is a Service over a real image store.
func imageService(t *testing.T) *Service {
	t.Helper()
	needsRoot(t)
	dir := t.TempDir()
	store, err := imagestore.Open(imagestore.Config{
		Root: filepath.Join(dir, "images"), RetryDelay: time.Millisecond, Registries: imagestore.RegistryConfig{DockerConfigDir: "-"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Run: filepath.Join(dir, "run"), Shim: newFakeShim(), Images: store, Network: newFakeNetwork(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(context.Background()), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func spec(image string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: image} }

func (s *Service) mustPull(t *testing.T, ref string) (id string) {
	t.Helper()
	id, err := s.PullImage(t.Context(), spec(ref), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// imageOf gives what ImageStatus says; nil: there is none.
func (s *Service) imageOf(t *testing.T, ref string) *runtimeapi.Image {
	t.Helper()
	r, err := s.ImageStatus(t.Context(), spec(ref), false)
	if err != nil {
		t.Fatal(err)
	}
	return r.GetImage()
}

func TestImageGoesWithAllItsNames(t *testing.T) {
	here, there := images.NewRegistry(t, images.RegistryOptions{}), images.NewRegistry(t, images.RegistryOptions{})
	built := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "1"})))
	other := here.Push("other:1", images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "2"}))))
	names := []string{here.Push("app:1", built), here.Push("app:2", built), there.Push("team/app:1", built)}
	s := imageService(t)
	for _, by := range []func(img *runtimeapi.Image) string{
		func(*runtimeapi.Image) string { return names[0] },
		func(*runtimeapi.Image) string { return names[2] },
		func(img *runtimeapi.Image) string { return img.GetRepoDigests()[0] },
		func(img *runtimeapi.Image) string { return img.GetId() },
		func(img *runtimeapi.Image) string { return img.GetId()[7:19] },
	} {
		otherID := s.mustPull(t, other)
		var id string
		for _, name := range names {
			id = s.mustPull(t, name)
		}
		img := s.imageOf(t, id)
		if len(img.GetRepoTags()) != 3 || len(img.GetRepoDigests()) != 2 {
			t.Fatalf("image is %v", img)
		}
		for _, name := range append(append([]string{id}, img.GetRepoTags()...), img.GetRepoDigests()...) {
			if got := s.imageOf(t, name); !proto.Equal(got, img) {
				t.Errorf("by %q it is %v, by its id %v", name, got, img)
			}
		}
		if err := s.RemoveImage(t.Context(), spec(by(img))); err != nil {
			t.Fatal(err)
		}
		for _, name := range append(names, id) {
			if got := s.imageOf(t, name); got != nil {
				t.Errorf("removed by %s, it is there by %s", by(img), name)
			}
		}
		if list, err := s.ListImages(t.Context(), nil); err != nil || len(list) != 1 || list[0].GetId() != otherID {
			t.Errorf("left are %v, %v", list, err)
		}
	}
}

func TestImageRemovedByManyAtOnce(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	built := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "1"})))
	names := []string{registry.Push("app:1", built), registry.Push("app:2", built)}
	s := imageService(t)
	for range 5 {
		s.mustPull(t, names[0])
		id := s.mustPull(t, names[1])
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				if err := s.RemoveImage(t.Context(), spec([]string{id, names[0], names[1]}[i%3])); err != nil {
					t.Errorf("one of several removals fails: %v", err)
				}
			})
		}
		wg.Wait() // one that finds its name gone may be done before the one at work
		if r, err := s.ImageStatus(t.Context(), spec(id), false); err != nil || r.GetImage() != nil {
			t.Errorf("after all removals it is there: %v, %v", r.GetImage(), err)
		}
	}
}

func TestImageFileSystemIsMeasuredAtOnce(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	ref := registry.Push("app:1", images.Image(t, images.Layer(t, images.Files{"f": make([]byte, 3<<20)})))
	s := imageService(t)
	used := func() (bytes, inodes uint64) {
		t.Helper()
		fs, err := s.ImageFsInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		u := fs.GetImageFilesystems()[0]
		return u.GetUsedBytes().GetValue(), u.GetInodesUsed().GetValue()
	}
	bytes, inodes := used()
	for range 2 {
		s.mustPull(t, ref)
		if more, moreInodes := used(); more < bytes+3<<20 || moreInodes <= inodes {
			t.Errorf("after the pull %d bytes and %d inodes, before %d and %d", more, moreInodes, bytes, inodes)
		}
		if err := s.RemoveImage(t.Context(), spec(ref)); err != nil {
			t.Fatal(err)
		}
		if less, lessInodes := used(); less != bytes || lessInodes != inodes {
			t.Errorf("after the removal %d bytes and %d inodes, before the pull %d and %d", less, lessInodes, bytes, inodes)
		}
	}
}

// What a kubelet reads from a failed pull: the code, or how the text begins.
func TestFailedPullsHaveTheirCodes(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	private := images.NewRegistry(t, images.RegistryOptions{Auth: images.BasicAuth, User: "a", Password: "b"})
	ill := images.NewRegistry(t, images.RegistryOptions{})
	ill.Push("app:1", images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "1"}))))
	ill.Misbehave(images.Fault{Kind: images.Status, Target: "manifests", Code: http.StatusServiceUnavailable})
	slow := images.NewRegistry(t, images.RegistryOptions{})
	layer := images.Layer(t, images.Text(map[string]string{"a": "1"}))
	slowRef := slow.Push("app:1", images.Image(t, layer))
	slow.Misbehave(images.Fault{Kind: images.Stall, Target: "blobs"})
	foreign := registry.Push("foreign:1", images.ImageFor(t, "s390x", layer))
	s := imageService(t)
	for ref, want := range map[string]codes.Code{
		registry.Host + "/no/such:1": codes.NotFound,
		foreign:                      codes.NotFound,
		private.Host + "/app:1":      codes.Unauthenticated,
		"UPPER":                      codes.InvalidArgument,
		ill.Host + "/app:1":          codes.Unknown,
		"127.0.0.1:1/app:1":          codes.Unknown,
	} {
		_, err := s.PullImage(t.Context(), spec(ref), nil, nil)
		if got := status.Code(err); got != want {
			t.Errorf("%s: %v is %v, want %v", ref, err, got, want)
		}
		begins := strings.HasPrefix(status.Convert(err).Message(), crierrors.ErrRegistryUnavailable.Error())
		if unavailable := want == codes.Unknown; begins != unavailable {
			t.Errorf("%s: %v; said to be unavailable: %v, want %v", ref, err, begins, unavailable)
		}
	}
	late, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.PullImage(late, spec(slowRef), nil, nil); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("too late: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.PullImage(gone, spec(slowRef), nil, nil); status.Code(err) != codes.Canceled {
		t.Errorf("given up: %v", err)
	}
	if _, err := s.ImageStatus(t.Context(), spec("UPPER"), false); status.Code(err) != codes.InvalidArgument {
		t.Errorf("status of no name: %v", err)
	}
}

func TestImageVolumeSaysWhichImageItIs(t *testing.T) {
	f := newFixture(t)
	f.images.image.Annotations = map[string]string{"a": "b"}
	sb, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	config := containerConfig("app")
	config.Mounts = []*runtimeapi.Mount{{
		ContainerPath: "/models", Readonly: true,
		Image: &runtimeapi.ImageSpec{Image: testImage, UserSpecifiedImage: "app:1"},
	}}
	asked := proto.CloneOf(config)
	id, err := f.CreateContainer(t.Context(), sb, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(asked, config) {
		t.Errorf("the caller's configuration was changed to %v", config)
	}
	for range 2 {
		got := f.statusOf(t, id).GetMounts()[0].GetImage()
		if got.GetImageRef() != f.images.image.ID || got.GetImage() != testImage || got.GetUserSpecifiedImage() != "app:1" {
			t.Errorf("the volume's image is %v", got)
		}
		f.reopen(t)
	}
	if diff := cmp.Diff(map[string]string{"a": "b"}, f.imageOf(t, testImage).GetSpec().GetAnnotations()); diff != "" {
		t.Error(diff)
	}
	config.Mounts[0].Image.Image = "nowhere/nothing:1"
	config.Metadata.Name = "other"
	if _, err := f.CreateContainer(t.Context(), sb, config, nil); status.Code(err) != codes.NotFound {
		t.Errorf("a volume of no image: %v", err)
	}
}
