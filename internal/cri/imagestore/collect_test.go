package imagestore

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berth-run/berth/internal/testutil/images"
)

func TestCollectFreesAFullDisk(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	s := openAt(t, smallDisk(t, 16<<20), nil)
	running := pull(t, s, registry.Push("running:v1", images.Image(t, big(t, 1, 2<<20))))
	idle := pull(t, s, registry.Push("idle:v1", images.Image(t, big(t, 2, 2<<20))))
	recent := pull(t, s, registry.Push("recent:v1", images.Image(t, big(t, 3, 1<<20))))
	for _, img := range []Image{running, recent} {
		if _, err := s.Prepare(t.Context(), img.ID, img, SnapshotOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Release(t.Context(), img.ID); err != nil {
			t.Fatal(err)
		}
	}
	isRunning := func(id string) bool { return id == running.ID }
	got, err := s.Collect(t.Context(), isRunning, Thresholds{HighPercent: 50, LowPercent: 49})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Victim{{ID: idle.ID, Reason: "disk"}}, got.Images); diff != "" || got.FreedBytes < 4<<20 {
		t.Errorf("%s; freed %d bytes", diff, got.FreedBytes)
	}
	usage, err := s.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if usage.ContentFiles != 6 || usage.ContentBytes < 3<<20 || usage.LayerBytes < 3<<20 || usage.LayerInodes == 0 ||
		usage.CapacityBytes != 16<<20 || usage.AvailableBytes < 8<<20 {
		t.Errorf("usage is %+v", usage)
	}
}

func TestRunFreesWhatWasReleased(t *testing.T) {
	s := open(t, nil)
	img := smallImage(t, s, "1")
	if _, err := s.Prepare(t.Context(), "c", img, SnapshotOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if got := leftovers(t, s)["layers"]; got != 3 {
		t.Fatalf("%d layers", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for leftovers(t, s)["layers"] != 2 && t.Context().Err() == nil {
		continue
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestCollectWorksOnADiskWithoutAByteLeft(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	root := smallDisk(t, 8<<20)
	s := openAt(t, root, nil)
	pull(t, s, registry.Push("idle:v1", images.Image(t, big(t, 2, 1<<20))))
	f, err := os.Create(filepath.Join(root, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 4096); ; {
		if _, err := f.Write(chunk); err != nil {
			break
		}
	}
	got, err := s.Collect(t.Context(), nothingInUse, Thresholds{HighPercent: 50, LowPercent: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Images) != 1 || got.FreedBytes < 2<<20 {
		t.Errorf("collected %+v", got)
	}
}

// A process that is killed between writing a file and recording it leaves
// files that the database does not know.
func TestCollectFindsFilesWithoutARecord(t *testing.T) {
	s := open(t, nil)
	img := smallImage(t, s, "1")
	before := leftovers(t, s)
	ctx := s.context(t.Context())
	stray := []byte("stray")
	desc := imgspec.Descriptor{Digest: digest.FromBytes(stray), Size: int64(len(stray))}
	if err := content.WriteBlob(ctx, s.blobs, "stray", bytes.NewReader(stray), desc); err != nil {
		t.Fatal(err)
	}
	if _, err := s.backend.Prepare(ctx, "stray", ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.cfg.Root, "snapshots", overlayName, "snapshots", "new-123"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, leftovers(t, s)); diff != "" {
		t.Error(diff)
	}
	contentOf(t, s, img)
}
