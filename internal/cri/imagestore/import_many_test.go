package imagestore

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berth-run/berth/internal/testutil/images"
)

// An archive of several images gives all of them: with names, with several names
// for one, and without any, as docker save writes images that are named by id.
func TestArchiveOfSeveralImages(t *testing.T) {
	one := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "one"})))
	two := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "two"})))
	tag := func(text string) name.Reference {
		ref, err := name.ParseReference(text)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	byDigest := func(img v1.Image) name.Reference {
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return tag("app@" + d.String())
	}
	for what, c := range map[string]struct {
		images map[name.Reference]v1.Image
		tags   map[string][]string // by content
	}{
		"two names of one image": {map[name.Reference]v1.Image{tag("app:1"): one, tag("app:2"): one},
			map[string][]string{"one": {"docker.io/library/app:1", "docker.io/library/app:2"}}},
		"two images": {map[name.Reference]v1.Image{tag("app:1"): one, tag("app:2"): two},
			map[string][]string{"one": {"docker.io/library/app:1"}, "two": {"docker.io/library/app:2"}}},
		"one without a name": {map[name.Reference]v1.Image{tag("app:1"): one, byDigest(two): two},
			map[string][]string{"one": {"docker.io/library/app:1"}, "two": nil}},
		"two without a name": {map[name.Reference]v1.Image{byDigest(one): one, byDigest(two): two},
			map[string][]string{"one": nil, "two": nil}},
	} {
		t.Run(what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "images.tar")
			if err := tarball.MultiRefWriteToFile(file, c.images); err != nil {
				t.Fatal(err)
			}
			s := open(t, nil)
			imported, err := s.Import(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]string{}
			for _, img := range imported {
				got[string(contentOf(t, s, img)["a"])] = img.Tags
			}
			if diff := cmp.Diff(c.tags, got); diff != "" {
				t.Errorf("images by content (-want +got):\n%s", diff)
			}
		})
	}
}

// The image for this machine is found below an index in an index.
func TestLayoutWithAnIndexInAnIndex(t *testing.T) {
	here := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "here"})))
	there := images.ImageFor(t, "s390x", images.Layer(t, images.Text(map[string]string{"a": "there"})))
	config, err := here.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	inner := images.Index(t, map[string]v1.Image{config.Architecture: here, "s390x": there})
	outer := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: inner})
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendIndex(outer, layout.WithAnnotations(map[string]string{imgspec.AnnotationRefName: "nested:v1"})); err != nil {
		t.Fatal(err)
	}
	s := open(t, nil)
	imported, err := s.Import(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(imported) != 1 || !slices.Equal(imported[0].Tags, []string{"docker.io/library/nested:v1"}) {
		t.Fatalf("imported %+v", imported)
	}
	if got := contentOf(t, s, imported[0]); string(got["a"]) != "here" {
		t.Errorf("files are %q", got)
	}
}
