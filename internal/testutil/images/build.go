package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Files are the regular files of a layer: path without leading slash → content.
// Parent folders are made. A content of nil is a whiteout: it removes the path
// that a lower layer has. A path that ends in "/" is an empty folder; with nil
// content, a folder that hides all that lower layers have in it.
type Files map[string][]byte

// Text makes Files of strings.
func Text(files map[string]string) Files {
	f := Files{}
	for p, text := range files {
		f[p] = []byte(text)
	}
	return f
}

// Layer makes a gzipped layer.
func Layer(t testing.TB, files Files) v1.Layer {
	t.Helper()
	var headers []Entry
	made := map[string]bool{}
	paths := make([]string, 0, len(files))
	for p := range files {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	for _, p := range paths {
		content := files[p]
		for _, dir := range parents(p) {
			if !made[dir] {
				made[dir] = true
				headers = append(headers, Entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}})
			}
		}
		switch {
		case strings.HasSuffix(p, "/") && content == nil:
			headers = append(headers, Entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: p, Mode: 0o755}},
				Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: p + ".wh..wh..opq"}})
		case strings.HasSuffix(p, "/"):
			headers = append(headers, Entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: p, Mode: 0o755}})
		case content == nil:
			headers = append(headers, Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: path.Join(path.Dir(p), ".wh."+path.Base(p))}})
		default:
			headers = append(headers, Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: p, Mode: 0o644}, Content: content})
		}
	}
	return RawLayer(t, headers)
}

func parents(p string) (dirs []string) {
	p = strings.TrimSuffix(p, "/")
	for dir := path.Dir(p); dir != "." && dir != "/"; dir = path.Dir(dir) {
		dirs = append([]string{dir + "/"}, dirs...)
	}
	return dirs
}

// Entry is one entry of a layer's archive.
type Entry struct {
	Header  tar.Header // Size is filled in
	Content []byte
}

// RawLayer makes a gzipped layer of exactly these entries, however odd.
func RawLayer(t testing.TB, entries []Entry) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		e.Header.Size = int64(len(e.Content))
		if e.Header.ModTime.IsZero() {
			e.Header.ModTime = time.Unix(1, 0)
		}
		if err := tw.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(e.Content); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// Image makes an image of layers, lowest first, for this machine.
func Image(t testing.TB, layers ...v1.Layer) v1.Image {
	t.Helper()
	return ImageFor(t, runtime.GOARCH, layers...)
}

// ImageFor makes an image for another architecture.
func ImageFor(t testing.TB, arch string, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config.Env = []string{"PATH=/bin"}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

// Index makes an index of images by architecture.
func Index(t testing.TB, images map[string]v1.Image) v1.ImageIndex {
	t.Helper()
	archs := make([]string, 0, len(images))
	for arch := range images {
		archs = append(archs, arch)
	}
	sort.Strings(archs)
	var adds []mutate.IndexAddendum
	for _, arch := range archs {
		adds = append(adds, mutate.IndexAddendum{
			Add:        images[arch],
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return mutate.AppendManifests(empty.Index, adds...)
}

// Random makes n layers of a few random files each, and says which files the
// image shows in the end. Upper layers change and remove files of lower ones.
func Random(t testing.TB, seed uint64, n, fileBytes int) ([]v1.Layer, Files) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 0))
	seen := Files{}
	var layers []v1.Layer
	for range n {
		layer := Files{}
		for range 1 + rnd.IntN(6) {
			p := fmt.Sprintf("d%d/f%d", rnd.IntN(3), rnd.IntN(8))
			if _, exists := seen[p]; exists && rnd.IntN(3) == 0 {
				layer[p] = nil
				delete(seen, p)
				continue
			}
			content := make([]byte, 1+rnd.IntN(fileBytes))
			for i := range content {
				content[i] = byte(rnd.Uint32())
			}
			layer[p], seen[p] = content, content
		}
		layers = append(layers, Layer(t, layer))
	}
	return layers, seen
}

// Append puts layers on top of an image.
func Append(t testing.TB, img v1.Image, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}
