package cri

import (
	"archive/tar"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/berth-run/berth/internal/testutil/images"
)

// The registries whose images critest pulls; all of them are one on loopback.
var registries = []string{"registry.k8s.io", "k8s.gcr.io", "gcr.io"}

const (
	e2eImages   = "e2e-test-images/"
	staging     = "k8s-staging-cri-tools/"
	digestImage = staging + "test-image-digest"
)

// Names of images that the tests here use, too.
const (
	busyboxImage = "registry.k8s.io/" + e2eImages + "busybox:1.29-2"
	nginxImage   = "registry.k8s.io/" + e2eImages + "nginx:1.14-2"
)

// serveImages starts a registry with every image that critest pulls, and returns
// the folder that leads a runtime to it.
func serveImages(t *testing.T, tools tools) (registriesDir string) {
	t.Helper()
	busybox := busyboxLayer(t, tools.busybox())
	web := webLayer(t, tools.apps())
	registry := images.NewRegistry(t, images.RegistryOptions{})
	push := func(name string, config v1.Config, layers ...v1.Layer) {
		registry.PushIndex(name, index(t, config, layers...))
	}
	shell := v1.Config{Cmd: []string{"sh"}}

	push(e2eImages+"busybox:1.29-2", shell, busybox)
	push(e2eImages+"nginx:1.14-2", v1.Config{Cmd: []string{"nginx"}}, busybox, web)
	push(e2eImages+"httpd:2.4.39-4", v1.Config{Cmd: []string{"httpd"}}, busybox, web)
	push(staging+"hostnet-nginx-"+runtime.GOARCH, v1.Config{Cmd: []string{"nginx", "-port", "12003"}}, busybox, web)
	push(e2eImages+"nonewprivs:1.3", v1.Config{Entrypoint: []string{"/nonewprivs"}}, program(t, tools.apps(), "nonewprivs", 0o4755))
	push("pause:3.9", v1.Config{Entrypoint: []string{"/pause"}}, program(t, tools.apps(), "pause", 0o755))

	// Images that differ in one file, and tags of one image.
	for repo, file := range map[string]string{
		"test-image-latest": "test-image-latest", "test-image-1": "test-image-1", "test-image-2": "test-image-2", "test-image-3": "test-image-3",
		"test-image-tag:test": "test", "test-image-tag:all": "all",
		"test-image-tags:1": "same-image", "test-image-tags:2": "same-image", "test-image-tags:3": "same-image",
	} {
		push(staging+repo, shell, busybox, images.Layer(t, images.Text(map[string]string{file: ""})))
	}
	registry.PushIndex(digestImage, indexByDigest(t))

	for repo, user := range map[string]string{
		"test-image-user-uid": "1002", "test-image-user-username": "www-data",
		"test-image-user-uid-group": "1003:users", "test-image-user-username-group": "www-data:www-data",
	} {
		push(staging+repo, v1.Config{Cmd: shell.Cmd, User: user}, busybox)
	}
	push(staging+"test-image-predefined-group", v1.Config{Cmd: shell.Cmd, User: "1000"}, busybox, images.Layer(t, images.Text(map[string]string{
		"etc/passwd": passwd + "default-user:x:1000:1000::/home/default-user:/bin/sh\n",
		"etc/group":  group + "default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n",
	})))
	return mirrors(t, registry.Host)
}

// mirrors makes the folder that has a runtime ask the registry at host instead of
// those of critest.
func mirrors(t *testing.T, host string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range registries {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil { //nolint:gosec // no secret
			t.Fatal(err)
		}
		hosts := "server = \"http://" + host + "\"\n[host.\"http://" + host + "\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
		if err := os.WriteFile(filepath.Join(dir, name, "hosts.toml"), []byte(hosts), 0o644); err != nil { //nolint:gosec // no secret
			t.Fatal(err)
		}
	}
	return dir
}

// indexByDigest is the image that critest pulls by digest; it's the same on every
// machine of one architecture.
func indexByDigest(t testing.TB) v1.ImageIndex {
	return index(t, v1.Config{}, images.Layer(t, images.Text(map[string]string{"test-image-digest": ""})))
}

// index is an image for this machine, in an index with one of another platform
// that must not be taken: there is nothing in it.
func index(t testing.TB, config v1.Config, layers ...v1.Layer) v1.ImageIndex {
	t.Helper()
	config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	image, err := mutate.Config(images.Image(t, layers...), config)
	if err != nil {
		t.Fatal(err)
	}
	const other = "s390x"
	return images.Index(t, map[string]v1.Image{other: images.ImageFor(t, other), runtime.GOARCH: image})
}

// Users and groups of all images with busybox.
const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n"
	group  = "root:x:0:\nwww-data:x:33:\nusers:x:100:\nnogroup:x:65534:\n"
)

// Programs that specs run and that the busybox of some distributions lacks.
const (
	pgrep = `#!/bin/sh
for comm in /proc/[0-9]*/comm; do
	{ read -r name <"$comm"; } 2>/dev/null || continue
	pid=${comm#/proc/}
	case $name in *"$1"*) echo "${pid%/comm}" ;; esac
done
`
	ipcs = "#!/bin/sh\ncat /proc/sysvipc/shm\n"
)

// busyboxLayer holds what busybox.sh unpacked, with a hard link for each applet:
// a symbolic one would lead a mask over /bin/ls to all of busybox.
func busyboxLayer(t testing.TB, root string) v1.Layer {
	t.Helper()
	entries := dirs("bin/", "etc/", "home/", "root/", "usr/", "usr/bin/", "usr/sbin/", "var/", "var/lib/", "var/log/", "var/run/")
	entries = append(entries, images.Entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}},
		file("bin/pgrep", 0o755, []byte(pgrep)), file("bin/ipcs", 0o755, []byte(ipcs)),
		file("etc/passwd", 0o644, []byte(passwd)), file("etc/group", 0o644, []byte(group)))
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil || name == "." || name == "bin":
			return err
		case d.IsDir():
			entries = append(entries, dirs(name+"/")...)
			return nil
		}
		content, err := os.ReadFile(path)
		entries = append(entries, file(name, 0o755, content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	applets, err := exec.Command(filepath.Join(root, "bin/busybox"), "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, applet := range strings.Fields(string(applets)) {
		if !slices.Contains([]string{"busybox", "pgrep", "ipcs"}, applet) {
			entries = append(entries, link("bin/"+applet, "bin/busybox"))
		}
	}
	return images.RawLayer(t, entries)
}

// webLayer holds the web servers.
func webLayer(t testing.TB, apps string) v1.Layer {
	t.Helper()
	content, err := os.ReadFile(apps)
	if err != nil {
		t.Fatal(err)
	}
	return images.RawLayer(t, []images.Entry{file("usr/sbin/nginx", 0o755, content), link("usr/sbin/httpd", "usr/sbin/nginx")})
}

// program is a layer of one program.
func program(t testing.TB, apps, name string, mode int64) v1.Layer {
	t.Helper()
	content, err := os.ReadFile(apps)
	if err != nil {
		t.Fatal(err)
	}
	return images.RawLayer(t, []images.Entry{file(name, mode, content)})
}

func dirs(names ...string) (entries []images.Entry) {
	for _, name := range names {
		entries = append(entries, images.Entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}})
	}
	return entries
}

func file(name string, mode int64, content []byte) images.Entry {
	return images.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, Content: content}
}

func link(name, to string) images.Entry {
	return images.Entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, Mode: 0o755}}
}
