package imagestore

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
)

// DemoName is the image that DemoImage makes.
const DemoName = "berth.local/demo:latest"

// labelDemoSource says of which file the demo image was made.
const labelDemoSource = "berth.run/demo-source"

// demoTools are the commands of berth-demo that are also found in /bin of the
// demo image, so that probes and hooks written for a usual image work.
var demoTools = []string{
	"cat", "echo", "env", "false", "id", "ls", "mkdir", "rm", "sleep", "stat", "test", "touch", "true", "write",
}

// DemoImage makes the image berth.local/demo:latest from the berth-demo binary.
// It is made anew only if the binary has changed; the same binary gives the
// same digests on any machine. The image is pinned.
func (s *Store) DemoImage(ctx context.Context, binary string) (Image, error) {
	f, err := os.Open(binary)
	if err != nil {
		return Image{}, fmt.Errorf("cannot make image %q: %w", DemoName, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Image{}, fmt.Errorf("cannot make image %q: %w", DemoName, err)
	}
	if !info.Mode().IsRegular() {
		return Image{}, fmt.Errorf("cannot make image %q: %s is not a file", DemoName, binary)
	}
	source := fileIdentity(info)
	if img, ok := s.currentDemo(ctx, source); ok {
		return img, nil
	}
	return s.Put(ctx, PutRequest{
		Name: DemoName,
		Config: imgspec.Image{
			Created:  &time.Time{},
			Author:   "berth",
			Platform: imgspec.Platform{OS: "linux", Architecture: runtime.GOARCH},
			Config: imgspec.ImageConfig{
				Entrypoint:   []string{"/berth-demo"},
				Cmd:          []string{"serve"},
				Env:          []string{"PATH=/bin:/"},
				WorkingDir:   "/",
				ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			},
		},
		Layer:  func(w io.Writer) error { return writeDemoLayer(w, f, info.Size()) },
		Pinned: true,
		Labels: map[string]string{labelDemoSource: source},
	})
}

// currentDemo finds the demo image if it was made of the file with that
// identity.
func (s *Store) currentDemo(ctx context.Context, source string) (Image, bool) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Image{}, false
	}
	defer leave()
	record, err := s.images.Get(ctx, DemoName)
	if err != nil || record.Labels[labelDemoSource] != source {
		return Image{}, false
	}
	img, err := s.get(ctx, DemoName)
	return img, err == nil
}

// fileIdentity changes whenever the file was written or replaced.
func fileIdentity(info os.FileInfo) string {
	var inode uint64
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintf("%d/%d/%d", inode, info.Size(), info.ModTime().UnixNano())
}

// writeDemoLayer writes the demo image's filesystem. All times are zero so that
// the digest depends on the binary only.
func writeDemoLayer(w io.Writer, binary io.Reader, size int64) error {
	tw := tar.NewWriter(w)
	put := func(h tar.Header, body io.Reader) error {
		h.ModTime = time.Unix(0, 0)
		h.Format = tar.FormatUSTAR
		if err := tw.WriteHeader(&h); err != nil {
			return err
		}
		if body == nil {
			return nil
		}
		_, err := io.Copy(tw, body)
		return err
	}
	for _, dir := range []struct {
		name string
		mode int64
	}{{"bin/", 0o755}, {"dev/", 0o755}, {"etc/", 0o755}, {"proc/", 0o555}, {"sys/", 0o555}, {"tmp/", 0o1777}, {"var/", 0o755}} {
		if err := put(tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode}, nil); err != nil {
			return err
		}
	}
	for _, file := range []struct{ name, text string }{
		{"etc/passwd", "root:x:0:0:root:/:/berth-demo\nnobody:x:65534:65534:nobody:/:/berth-demo\n"},
		{"etc/group", "root:x:0:\nnogroup:x:65534:\n"},
	} {
		h := tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: 0o644, Size: int64(len(file.text))}
		if err := put(h, strings.NewReader(file.text)); err != nil {
			return err
		}
	}
	if err := put(tar.Header{Typeflag: tar.TypeReg, Name: "berth-demo", Mode: 0o755, Size: size}, binary); err != nil {
		return err
	}
	for _, tool := range demoTools {
		h := tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + tool, Linkname: "/berth-demo", Mode: 0o777}
		if err := put(h, nil); err != nil {
			return err
		}
	}
	return tw.Close()
}
