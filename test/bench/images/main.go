// Command images writes docker archives for the benchmarks and their peers, from
// files on this machine: a busybox image from a static busybox, and a pause image
// from a static binary.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

type file struct {
	path string
	data []byte
	link string
	mode int64
}

func layer(files []file) v1.Layer {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	seen := map[string]bool{}
	for _, f := range files {
		if d := filepath.Dir(f.path); d != "." && !seen[d] {
			seen[d] = true
			check(t.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o755}))
		}
		switch {
		case f.link != "":
			check(t.WriteHeader(&tar.Header{Name: f.path, Typeflag: tar.TypeSymlink, Linkname: f.link}))
		case strings.HasSuffix(f.path, "/"):
			check(t.WriteHeader(&tar.Header{Name: f.path, Typeflag: tar.TypeDir, Mode: f.mode}))
		default:
			check(t.WriteHeader(&tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.data))}))
			_, err := t.Write(f.data)
			check(err)
		}
	}
	check(t.Close())
	return static.NewLayer(b.Bytes(), types.DockerUncompressedLayer)
}

func write(out, ref string, files []file, cfg v1.Config) {
	img, err := mutate.AppendLayers(empty.Image, layer(files))
	check(err)
	cf, err := img.ConfigFile()
	check(err)
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture, cf.Config = "linux", runtime.GOARCH, cfg
	img, err = mutate.ConfigFile(img, cf)
	check(err)
	tag, err := name.NewTag(ref)
	check(err)
	check(tarball.WriteToFile(out, tag, img))
}

func main() {
	out := flag.String("o", ".", "folder for busybox.tar and pause.tar")
	bb := flag.String("busybox", "/bin/busybox", "static busybox")
	pause := flag.String("pause", "", "static pause binary; none: no pause.tar")
	flag.Parse()
	data, err := os.ReadFile(*bb)
	check(err)
	files := []file{{path: "tmp/", mode: 0o1777}, {path: "bin/busybox", data: data, mode: 0o755},
		{path: "etc/passwd", data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"), mode: 0o644},
		{path: "etc/group", data: []byte("root:x:0:\nnogroup:x:65534:\n"), mode: 0o644}}
	list, err := exec.Command(*bb, "--list").Output()
	check(err)
	for _, a := range strings.Fields(string(list)) {
		if a != "busybox" {
			files = append(files, file{path: "bin/" + a, link: "busybox"})
		}
	}
	write(filepath.Join(*out, "busybox.tar"), "docker.io/library/busybox:1.36", files, v1.Config{Cmd: []string{"sh"}, Env: []string{"PATH=/bin"}})
	if *pause != "" {
		data, err := os.ReadFile(*pause)
		check(err)
		write(filepath.Join(*out, "pause.tar"), "docker.io/local/pause:1", []file{{path: "pause", data: data, mode: 0o755}}, v1.Config{Entrypoint: []string{"/pause"}})
	}
}
