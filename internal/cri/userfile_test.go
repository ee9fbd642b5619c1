package cri

import (
	"archive/tar"
	"context"
	"io"
	"runtime"
	"testing"
	"time"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

// An image's list of users may be anything: looking into it ends.
func TestUserFilesThatAreNoFiles(t *testing.T) {
	s := imageService(t)
	store := s.cfg.Images.(*imagestore.Store)
	for name, h := range map[string]tar.Header{
		"a named pipe":               {Typeflag: tar.TypeFifo},
		"an endless one":             {Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5},
		"a folder":                   {Typeflag: tar.TypeDir},
		"a link outside":             {Typeflag: tar.TypeSymlink, Linkname: "../../../../../../../etc/passwd"},
		"a link to it":               {Typeflag: tar.TypeSymlink, Linkname: "passwd"},
		"a link to a link to a pipe": {Typeflag: tar.TypeSymlink, Linkname: "/etc/pipe"},
	} {
		t.Run(name, func(t *testing.T) {
			config := imgspec.Image{Platform: imgspec.Platform{OS: "linux", Architecture: runtime.GOARCH}}
			img, err := store.Put(t.Context(), imagestore.PutRequest{Name: "users:1", Config: config, Layer: func(w io.Writer) error {
				tw := tar.NewWriter(w)
				h.Name, h.Mode = "etc/passwd", 0o644
				for _, h := range []tar.Header{{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755}, {Typeflag: tar.TypeFifo, Name: "etc/pipe", Mode: 0o644}, h} {
					if err := tw.WriteHeader(&h); err != nil {
						return err
					}
				}
				return tw.Close()
			}})
			if err != nil {
				t.Fatal(err)
			}
			mounts, err := store.Prepare(t.Context(), "c", img, imagestore.SnapshotOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := store.Release(context.Background(), "c"); err != nil {
					t.Error(err)
				}
			}()
			ended := make(chan error, 1)
			go func() {
				user, err := resolveUser(context.Background(), containerConfig("app"), "root:root", rootfs{mounts: mounts})
				if err == nil {
					t.Errorf("found %+v", user)
				}
				ended <- err
			}()
			select {
			case err := <-ended:
				t.Log(err)
			case <-time.After(20 * time.Second):
				t.Fatal("looking into it does not end")
			}
		})
	}
}
