package imagestore

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berth-run/berth/internal/testutil/images"
)

// blobServer is a registry of blobs with digests of any algorithm.
type blobServer struct {
	t     *testing.T
	host  string
	blobs map[string][]byte // by digest or tag
	types map[string]string
}

func newBlobServer(t *testing.T) *blobServer {
	b := &blobServer{t: t, blobs: map[string][]byte{}, types: map[string]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := path.Base(r.URL.Path)
		raw, ok := b.blobs[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", b.types[name])
		if _, err := w.Write(raw); err != nil {
			t.Log(err)
		}
	}))
	t.Cleanup(server.Close)
	b.host = strings.TrimPrefix(server.URL, "http://")
	return b
}

// add stores raw under its digest and, if it has one, a tag.
func (b *blobServer) add(algorithm digest.Algorithm, mediaType string, raw []byte, tags ...string) imgspec.Descriptor {
	d := imgspec.Descriptor{MediaType: mediaType, Digest: algorithm.FromBytes(raw), Size: int64(len(raw))}
	for _, name := range append(tags, d.Digest.String()) {
		b.blobs[name], b.types[name] = raw, mediaType
	}
	return d
}

func (b *blobServer) addJSON(algorithm digest.Algorithm, mediaType string, v any, tags ...string) imgspec.Descriptor {
	b.t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.add(algorithm, mediaType, raw, tags...)
}

// image adds an image with one file.
func (b *blobServer) image(algorithm digest.Algorithm, arch, content string, tags ...string) imgspec.Descriptor {
	b.t.Helper()
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for _, err := range []error{
		tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: int64(len(content)), Mode: 0o644}),
		func() error { _, err := tw.Write([]byte(content)); return err }(), tw.Close(),
	} {
		if err != nil {
			b.t.Fatal(err)
		}
	}
	config := imgspec.Image{Platform: imgspec.Platform{OS: "linux", Architecture: arch}}
	config.RootFS = imgspec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer.Bytes())}}
	return b.addJSON(digest.SHA256, imgspec.MediaTypeImageManifest, imgspec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: imgspec.MediaTypeImageManifest,
		Config:      b.addJSON(algorithm, imgspec.MediaTypeImageConfig, config),
		Layers:      []imgspec.Descriptor{b.add(algorithm, imgspec.MediaTypeImageLayer, layer.Bytes())},
		Annotations: map[string]string{"made": "here"},
	}, tags...)
}

func (b *blobServer) index(entries []imgspec.Descriptor, tags ...string) imgspec.Descriptor {
	b.t.Helper()
	return b.addJSON(digest.SHA256, imgspec.MediaTypeImageIndex, imgspec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: imgspec.MediaTypeImageIndex, Manifests: entries,
	}, tags...)
}

func TestImageIDsOfOtherAlgorithms(t *testing.T) {
	b := newBlobServer(t)
	b.image(digest.SHA512, runtime.GOARCH, "x", "v1")
	root := t.TempDir()
	s := openAt(t, root, nil)
	ref := b.host + "/app:v1"
	img := pull(t, s, ref)
	hex, isSHA512 := strings.CutPrefix(img.ID, "sha512:")
	if !isSHA512 {
		t.Fatalf("id is %s", img.ID)
	}
	for _, name := range []string{img.ID, hex, hex[:12], "sha512:" + hex[:12], ref} {
		if got, err := s.Get(t.Context(), name); err != nil || got.ID != img.ID {
			t.Errorf("Get(%q) = %q, %v", name, got.ID, err)
		}
	}
	for _, name := range []string{"sha256:" + hex[:12], "md5:" + hex[:12], hex + "00"} {
		if _, err := s.Get(t.Context(), name); err == nil {
			t.Errorf("Get(%q) finds it", name)
		}
	}
	if diff := cmp.Diff([]string{ref}, img.Tags); diff != "" || img.Annotations["made"] != "here" {
		t.Errorf("%s; annotations %v", diff, img.Annotations)
	}
	if diff := cmp.Diff(images.Text(map[string]string{"f": "x"}), contentOf(t, s, img)); diff != "" {
		t.Error(diff)
	}
	// A name that is an id is no tag, of whatever algorithm it is.
	if kindOf(img.ID) != idName || kindOf("docker.io/library/sha512:"+hex) != tagName {
		t.Error("the id is taken for a tag, or a tag for an id")
	}
	if err := s.Remove(t.Context(), hex[:8]); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left: %v, %v", all, err)
	}
}

// Entries that don't say their platform are looked into until one fits.
func TestIndexWithoutPlatformsIsSearched(t *testing.T) {
	b := newBlobServer(t)
	there := b.image(digest.SHA256, "s390x", "there")
	here := b.image(digest.SHA256, runtime.GOARCH, "here")
	lost := here
	lost.Digest = digest.FromString("not there")
	named := func(d imgspec.Descriptor, arch string) imgspec.Descriptor {
		d.Platform = &imgspec.Platform{OS: "linux", Architecture: arch}
		return d
	}
	cases := map[string]struct {
		entries []imgspec.Descriptor
		want    error
	}{
		"the second fits":                      {entries: []imgspec.Descriptor{there, here}},
		"the one after a missing one fits":     {entries: []imgspec.Descriptor{lost, here}},
		"one in a nested index fits":           {entries: []imgspec.Descriptor{there, b.index([]imgspec.Descriptor{there, here})}},
		"one with its platform goes first":     {entries: []imgspec.Descriptor{lost, named(here, runtime.GOARCH)}},
		"none fits":                            {entries: []imgspec.Descriptor{there, there}, want: ErrPlatform},
		"none fits, and one can't be read":     {entries: []imgspec.Descriptor{there, lost}, want: ErrMissing},
		"the only one is for another platform": {entries: []imgspec.Descriptor{there}, want: ErrPlatform},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			b.index(c.entries, "v1")
			ref := b.host + "/app:v1"
			s := openAt(t, root, nil)
			_, err := s.Pull(t.Context(), ref, nil, nil)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if c.want != nil {
				return
			}
			// What was looked into and did not fit is garbage, and not missed by
			// somebody who looks anew.
			if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			s.described = map[digest.Digest]*facts{}
			s.mu.Unlock()
			img, err := s.Get(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(images.Text(map[string]string{"f": "here"}), contentOf(t, s, img)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Something that can be read in two ways is refused, whatever way we would take.
func TestManifestThatIsAlsoAnIndexIsRefused(t *testing.T) {
	for name, raw := range map[string]string{
		"an index with layers":            `{"mediaType":"` + imgspec.MediaTypeImageIndex + `","manifests":[],"layers":[]}`,
		"an index that says it is none":   `{"mediaType":"` + imgspec.MediaTypeImageManifest + `","manifests":[]}`,
		"a manifest with manifests":       `{"mediaType":"` + imgspec.MediaTypeImageManifest + `","manifests":[],"layers":[]}`,
		"a manifest that says it is none": `{"mediaType":"` + imgspec.MediaTypeImageIndex + `","layers":[]}`,
	} {
		kind := imgspec.MediaTypeImageManifest
		if strings.HasPrefix(name, "an index") {
			kind = imgspec.MediaTypeImageIndex
		}
		if err := checkKind([]byte(raw), imgspec.Descriptor{MediaType: kind}); !errors.Is(err, ErrNotImage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
