package imagestore

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// fuzzStore is a store that all inputs of a fuzz target share, in memory: a disk
// is too slow.
func fuzzStore(f *testing.F, snapshotter string) *Store {
	f.Helper()
	root := f.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=256m"); err != nil {
		f.Skipf("cannot mount a file system in memory: %v", err)
	}
	f.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			f.Error(err)
		}
	})
	s, err := Open(Config{
		Root: root, Snapshotter: snapshotter, RetryDelay: time.Millisecond,
		Log: slog.New(slog.DiscardHandler), Registries: RegistryConfig{DockerConfigDir: "-"},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.Error(err)
		}
	})
	return s
}

// layerFile is a layer with one file.
func layerFile() []byte {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 1, Mode: 0o644})
	_, _ = io.WriteString(tw, "x")
	_ = tw.Close()
	return buf.Bytes()
}

// documents are an index, a manifest and a config, of texts in which INDEX,
// MANIFEST, CONFIG and LAYER stand for descriptors and DIFF for a digest: so that
// what is changed elsewhere still fits together.
func documents(index, manifest, config string) (top imgspec.Descriptor, blobs map[string][]byte, types map[string]string) {
	blobs, types = map[string][]byte{}, map[string]string{}
	add := func(mediaType string, raw []byte) string {
		d := imgspec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
		blobs[d.Digest.String()], types[d.Digest.String()] = raw, mediaType
		top = d
		text, _ := json.Marshal(d)
		return string(text)
	}
	layer := layerFile()
	layerText := add(imgspec.MediaTypeImageLayer, layer)
	replace := func(text, word, with string) string {
		if strings.Count(text, word) > 8 { // or it grows without end
			return text
		}
		return strings.ReplaceAll(text, word, with)
	}
	config = replace(config, "DIFF", digest.FromBytes(layer).String())
	configText := add(imgspec.MediaTypeImageConfig, []byte(replace(config, "ARCH", runtime.GOARCH)))
	manifestText := add(imgspec.MediaTypeImageManifest, []byte(replace(replace(manifest, "LAYER", layerText), "CONFIG", configText)))
	add(imgspec.MediaTypeImageIndex, []byte(replace(index, "MANIFEST", manifestText)))
	return top, blobs, types
}

const (
	goodIndex    = `{"schemaVersion":2,"manifests":[MANIFEST]}`
	goodManifest = `{"schemaVersion":2,"config":CONFIG,"layers":[LAYER]}`
	goodConfig   = `{"architecture":"ARCH","os":"linux","rootfs":{"type":"layers","diff_ids":["DIFF"]}}`
)

func addDocuments(f *testing.F) {
	for _, seed := range [][3]string{
		{goodIndex, goodManifest, goodConfig},
		{`{"manifests":[]}`, goodManifest, goodConfig},
		{`{"manifests":[MANIFEST,MANIFEST]}`, goodManifest, goodConfig},
		{`{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:..","size":-1}]}`, goodManifest, goodConfig},
		{`{"manifests":[null],"layers":[]}`, `null`, `[]`},
		{goodIndex, `{"config":CONFIG,"layers":[LAYER,LAYER]}`, `{"architecture":"ARCH","os":"linux","rootfs":{"diff_ids":["DIFF","DIFF"]}}`},
		{goodIndex, `{"config":LAYER,"layers":[CONFIG]}`, goodConfig},
		{goodIndex, `{"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"md5:x","size":9223372036854775807},"layers":[]}`, goodConfig},
		{goodIndex, goodManifest, `{"architecture":"ARCH","os":"linux","rootfs":{"diff_ids":["use/a"]}}`},
		{goodIndex, goodManifest, `{"architecture":"ARCH","os":"linux","rootfs":{"type":"other","diff_ids":["DIFF"]},"config":{"User":"` + strings.Repeat("9", 40) + `"}}`},
		{goodIndex, goodManifest, `{"rootfs":{"diff_ids":["sha256:` + strings.Repeat("0", 64) + `"]}}`},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
}

// checkStored says what is wrong with what the store took in.
func checkStored(t *testing.T, s *Store, img Image) {
	t.Helper()
	if digest.Digest(img.ID).Validate() != nil || img.Size < 0 {
		t.Errorf("image is %+v", img)
	}
	for _, d := range img.Spec.RootFS.DiffIDs {
		if d.Validate() != nil {
			t.Errorf("accepted layer %q", d)
		}
	}
	if _, err := s.View(t.Context(), "fuzz", img, SnapshotOptions{}); err != nil {
		t.Errorf("accepted image cannot be used: %v", err)
	}
	if err := s.Release(t.Context(), "fuzz"); err != nil {
		t.Error(err)
	}
	if err := s.Remove(t.Context(), img.ID); err != nil {
		t.Error(err)
	}
}

// Whatever a registry says its image is: a pull ends, and what it accepts can be
// used.
func FuzzPulledDocuments(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("needs root: unpacks images")
	}
	var served atomic.Pointer[func(name string) (raw []byte, mediaType string)]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, mediaType := (*served.Load())(path.Base(r.URL.Path))
		if raw == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", mediaType)
		_, _ = w.Write(raw)
	}))
	f.Cleanup(server.Close)
	s := fuzzStore(f, nativeName)
	addDocuments(f)
	f.Fuzz(func(t *testing.T, index, manifest, config string) {
		top, blobs, types := documents(index, manifest, config)
		serve := func(name string) ([]byte, string) {
			if name == "v1" {
				name = top.Digest.String()
			}
			return blobs[name], types[name]
		}
		served.Store(&serve)
		img, err := s.Pull(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/app:v1", nil, nil)
		if err != nil {
			if index == goodIndex && manifest == goodManifest && config == goodConfig {
				t.Fatal(err)
			}
			return
		}
		checkStored(t, s, img)
	})
}

// Whatever is in an archive: the import ends, writes nothing elsewhere, and what
// it accepts can be used.
func FuzzArchive(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("needs root: unpacks images")
	}
	s := fuzzStore(f, nativeName)
	for _, seed := range []struct{ index, manifest, config, name, link string }{
		{goodIndex, goodManifest, goodConfig, "oci-layout", ""},
		{goodIndex, `[{"Config":"config.json","RepoTags":["app:1"],"Layers":["layer.tar"]}]`, goodConfig, "manifest.json", "layer.tar"},
		{goodIndex, `[{"Config":"config.json","RepoTags":["a b"],"Layers":["layer.tar","layer.tar"]}]`, goodConfig, "manifest.json", "../../../../etc/passwd"},
		{goodIndex, `[{"Config":"/etc/passwd","Layers":["../layer.tar"]}]`, goodConfig, "manifest.json", "/etc/passwd"},
		{goodIndex, `[]`, `{}`, "manifest.json", "manifest.json"},
		{`{}`, `null`, ``, "../manifest.json", "loop"},
	} {
		f.Add(seed.index, seed.manifest, seed.config, seed.name, seed.link)
	}
	f.Fuzz(func(t *testing.T, index, manifest, config, name, link string) {
		top, blobs, _ := documents(index, manifest, config)
		var buf bytes.Buffer
		tw := tar.NewWriter(&buf)
		add := func(kind byte, name, link string, raw []byte) {
			h := &tar.Header{Typeflag: kind, Name: name, Linkname: link, Size: int64(len(raw)), Mode: 0o644}
			if tw.WriteHeader(h) == nil { // else a name that no archive can hold
				_, _ = tw.Write(raw)
			}
		}
		if name == imgspec.ImageLayoutFile {
			add(tar.TypeReg, name, "", []byte(`{"imageLayoutVersion":"1.0.0"}`))
			add(tar.TypeReg, imgspec.ImageIndexFile, "", blobs[top.Digest.String()])
			for d, raw := range blobs {
				add(tar.TypeReg, "blobs/"+strings.ReplaceAll(d, ":", "/"), "", raw)
			}
		} else {
			add(tar.TypeReg, "config.json", "", []byte(strings.NewReplacer("ARCH", runtime.GOARCH, "DIFF", digest.FromBytes(layerFile()).String()).Replace(config)))
			add(tar.TypeReg, "real.tar", "", layerFile())
			add(tar.TypeSymlink, "layer.tar", link, nil)
			if link == "layer.tar" {
				add(tar.TypeReg, "layer.tar", "", layerFile())
			}
			add(tar.TypeSymlink, link, "real.tar", nil)
			add(tar.TypeReg, name, "", []byte(manifest))
		}
		_ = tw.Close()
		before := strays(t, s)
		imported, err := s.ImportReader(t.Context(), bytes.NewReader(buf.Bytes()))
		if err == nil && len(imported) == 0 {
			t.Error("nothing was imported, without an error")
		}
		if name == imgspec.ImageLayoutFile && index == goodIndex && manifest == goodManifest && config == goodConfig && err != nil {
			t.Fatal(err)
		}
		for _, img := range imported {
			checkStored(t, s, img)
		}
		if after := strays(t, s); after != before {
			t.Errorf("in the store's folder is now %s, before %s", after, before)
		}
	})
}

// Whatever bytes claim to be an archive.
func FuzzArchiveBytes(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("needs root: unpacks images")
	}
	s := fuzzStore(f, nativeName)
	f.Add(layerFile())
	f.Add([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0})
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x24, 0, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		imported, err := s.ImportReader(t.Context(), bytes.NewReader(raw))
		if err == nil && len(imported) == 0 {
			t.Error("nothing was imported, without an error")
		}
		for _, img := range imported {
			checkStored(t, s, img)
		}
	})
}

// strays names what is at the top of the store's folder.
func strays(t *testing.T, s *Store) string {
	t.Helper()
	entries, err := fs.ReadDir(os.DirFS(filepath.Dir(s.cfg.Root)), filepath.Base(s.cfg.Root))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(entries)
}

// Whatever people or registries call an image: no panic, a full form is its own,
// and what is an id is no name.
func FuzzReference(f *testing.F) {
	for _, seed := range []string{
		"busybox", "a/b:c", "sha256:" + strings.Repeat("a", 64), "a@sha512:" + strings.Repeat("b", 128), "sha256:abcd", ":", "@", "[::1]:5000/a", "UPPER",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		if begins, ok := shortID(ref); ok && begins("sha256:0123") && !strings.HasPrefix("sha256:0123", ref) && !strings.HasPrefix("0123", ref) {
			t.Errorf("%q begins another id", ref)
		}
		full, err := Normalize(ref)
		if err != nil {
			if !errors.Is(err, ErrInvalidReference) {
				t.Errorf("%q: %v", ref, err)
			}
			return
		}
		if again, err := Normalize(full); err != nil || again != full {
			t.Errorf("%q is %q, that is %q, %v", ref, full, again, err)
		}
		if kindOf(full) == idName {
			t.Errorf("name %q is taken for an id", full)
		}
	})
}

// Whatever a registry sends with a 429.
func FuzzRetryAfter(f *testing.F) {
	f.Add("120", `{"errors":[{"code":"TOOMANYREQUESTS","message":"x"}]}`)
	f.Add("Fri, 02 Jan 2026 03:05:05 GMT", `{"errors":null}`)
	f.Add("-1", `[`)
	f.Fuzz(func(t *testing.T, header, body string) {
		now := time.Unix(1_700_000_000, 0)
		if at := retryAfter(header, now); !at.IsZero() && (at.Before(now) || at.After(now.Add(maxRetryAfter))) {
			t.Errorf("%q is %v", header, at)
		}
		if said := reasonIn(strings.NewReader(body)); len(said) > 4*300 {
			t.Errorf("%d bytes are repeated", len(said))
		}
	})
}
