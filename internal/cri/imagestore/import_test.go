package imagestore

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/opencontainers/image-spec/specs-go"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berth-run/berth/internal/testutil/images"
)

// dockerArchive writes what docker save writes.
func dockerArchive(t *testing.T, ref string, img v1.Image) string {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "docker.tar")
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		t.Fatal(err)
	}
	return file
}

// ociLayout writes an OCI layout folder; refName may be empty.
func ociLayout(t *testing.T, dir, refName string, img v1.Image) string {
	t.Helper()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	var options []layout.Option
	if refName != "" {
		options = append(options, layout.WithAnnotations(map[string]string{imgspec.AnnotationRefName: refName}))
	}
	if err := p.AppendImage(img, options...); err != nil {
		t.Fatal(err)
	}
	return dir
}

func ociArchive(t *testing.T, layoutDir string) string {
	t.Helper()
	var buf bytes.Buffer
	if err := writeLayout(&buf, layoutDir); err != nil {
		t.Fatal(err)
	}
	return write(t, "oci.tar", buf.Bytes())
}

func write(t *testing.T, base string, raw []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), base)
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func gzipped(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Base(file)+".gz", buf.Bytes())
}

func TestImportFormats(t *testing.T) {
	layers, want := images.Random(t, 42, 3, 2000)
	built := images.Image(t, layers...)
	full := ociLayout(t, t.TempDir(), "example.com/team/app:v1", built)
	docker := dockerArchive(t, "team/app:v2", built)
	cases := map[string]struct {
		from string
		tags []string
	}{
		"layout folder":        {full, []string{"example.com/team/app:v1"}},
		"OCI archive":          {ociArchive(t, full), []string{"example.com/team/app:v1"}},
		"OCI archive, gzip":    {gzipped(t, ociArchive(t, full)), []string{"example.com/team/app:v1"}},
		"docker archive":       {docker, []string{"docker.io/team/app:v2"}},
		"docker archive, gzip": {gzipped(t, docker), []string{"docker.io/team/app:v2"}},
		"layout with only a tag": {
			ociLayout(t, filepath.Join(t.TempDir(), "hello"), "v3", built), []string{"docker.io/library/hello:v3"}},
		"layout without a name": {ociLayout(t, t.TempDir(), "", built), nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := open(t, nil)
			for range 2 { // a second time changes nothing
				imported, err := s.Import(t.Context(), c.from)
				if err != nil {
					t.Fatal(err)
				}
				if len(imported) != 1 {
					t.Fatalf("imported %d images", len(imported))
				}
				if diff := cmp.Diff(c.tags, imported[0].Tags); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(want, contentOf(t, s, imported[0])); diff != "" {
					t.Error(diff)
				}
				if _, err := s.Get(t.Context(), imported[0].ID[7:17]); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
				t.Fatal(err)
			}
			if all, _ := s.List(t.Context()); len(all) != 1 {
				t.Errorf("%d images after collection", len(all))
			}
			if got := leftovers(t, s); got["ingests"] != 0 || got["leases"] != 0 || got["layers"] != 3 {
				t.Errorf("left: %v", got)
			}
		})
	}
}

func TestImportTakesThePlatformOfThisMachine(t *testing.T) {
	here := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "here"})))
	there := images.ImageFor(t, "s390x", images.Layer(t, images.Text(map[string]string{"a": "there"})))
	config, _ := here.ConfigFile()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	index := images.Index(t, map[string]v1.Image{config.Architecture: here, "s390x": there})
	if err := p.AppendIndex(index, layout.WithAnnotations(map[string]string{imgspec.AnnotationRefName: "multi:v1"})); err != nil {
		t.Fatal(err)
	}
	s := open(t, nil)
	imported, err := s.Import(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, s, imported[0]); string(got["a"]) != "here" {
		t.Errorf("files are %q", got)
	}
	if _, err := s.Import(t.Context(), dockerArchive(t, "there:v1", there)); !errors.Is(err, ErrPlatform) {
		t.Errorf("foreign image: %v", err)
	}
}

func TestBadArchives(t *testing.T) {
	built := images.Image(t, big(t, 1, 50_000))
	good := dockerArchive(t, "app:v1", built)
	raw, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	tarOf := func(entries map[string]string) string {
		var buf bytes.Buffer
		tw := tar.NewWriter(&buf)
		for name, text := range entries {
			_ = tw.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o644})
			_, _ = io.WriteString(tw, text)
		}
		_ = tw.Close()
		return write(t, "odd.tar", buf.Bytes())
	}
	damagedLayout := ociLayout(t, t.TempDir(), "app:v1", built)
	blobs, _ := filepath.Glob(filepath.Join(damagedLayout, "blobs/sha256/*"))
	for _, b := range blobs {
		if info, _ := os.Stat(b); info.Size() > 10_000 {
			text, _ := os.ReadFile(b)
			text[len(text)/2] ^= 1
			if err := os.WriteFile(b, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	emptyLayout := t.TempDir()
	if _, err := layout.Write(emptyLayout, empty.Index); err != nil {
		t.Fatal(err)
	}
	zipped, _ := os.ReadFile(gzipped(t, good))
	cases := map[string]struct {
		from string
		want error
		says string
	}{
		"missing":             {"/no/such/file", os.ErrNotExist, "/no/such/file"},
		"empty file":          {write(t, "x", nil), ErrNotImage, ""},
		"short text":          {write(t, "x", []byte("kind: Pod\n")), ErrNotImage, "no OCI layout"},
		"short text, gzip":    {gzipped(t, write(t, "x", []byte("kind: Pod\n"))), ErrNotImage, "no OCI layout"},
		"text":                {write(t, "x", []byte(strings.Repeat("no archive\n", 200))), ErrNotImage, "no OCI layout"},
		"folder":              {t.TempDir(), ErrNotImage, "oci-layout"},
		"tar of other things": {tarOf(map[string]string{"readme": "hello"}), ErrNotImage, ""},
		"docker, config gone": {tarOf(map[string]string{"manifest.json": `[{"Config":"x.json","Layers":[]}]`}), ErrNotImage, "x.json"},
		"layout version":      {tarOf(map[string]string{"oci-layout": `{"imageLayoutVersion":"9.0"}`}), ErrNotImage, "9.0"},
		"no image inside":     {emptyLayout, ErrNotImage, "no image"},
		"cut off":             {write(t, "x.tar", raw[:len(raw)/2]), ErrDamaged, "cut off"},
		"cut off, gzip":       {write(t, "x.tgz", zipped[:len(zipped)/2]), ErrDamaged, "cut off"},
		"changed blob":        {damagedLayout, ErrDamaged, "missing or has another content"},
	}
	s := open(t, nil)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := s.Import(t.Context(), c.from)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v; want %v with %q", err, c.want, c.says)
			}
		})
	}
	if _, err := s.Import(t.Context(), good); err != nil {
		t.Errorf("a good archive after bad ones: %v", err)
	}
}

func TestGroupByName(t *testing.T) {
	named := func(ref string) imgspec.Descriptor {
		return imgspec.Descriptor{Annotations: map[string]string{imgspec.AnnotationRefName: ref}}
	}
	index := imgspec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []imgspec.Descriptor{
		named("a:v1"), named("a:v1"), named("b:v1"), {}, named("v2"),
		{Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest"}},
	}}
	entries, err := groupByName(index, "base")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, e := range entries {
		got[e.name] = len(e.manifests)
	}
	want := map[string]int{
		"docker.io/library/a:v1": 2, "docker.io/library/b:v1": 1, "": 1, "docker.io/library/base:v2": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
