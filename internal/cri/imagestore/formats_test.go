package imagestore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berth-run/berth/internal/testutil/images"
)

func TestLayerCompressions(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	want := images.Text(map[string]string{"a": "1", "d/b": "2"})
	gz := images.Layer(t, want)
	zstd, err := tarball.LayerFromOpener(gz.Uncompressed, tarball.WithCompression(compression.ZStd), tarball.WithMediaType(types.OCILayerZStd))
	if err != nil {
		t.Fatal(err)
	}
	for name, img := range map[string]Image{
		"gzip": pull(t, open(t, nil), registry.Push("gzip:v1", images.Image(t, gz))),
		"zstd": pull(t, open(t, nil), registry.Push("zstd:v1", images.Image(t, zstd))),
	} {
		if img.ChainID == "" {
			t.Errorf("%s: no layers", name)
		}
	}
	s := open(t, nil)
	if diff := cmp.Diff(want, contentOf(t, s, pull(t, s, registry.Host+"/zstd:v1"))); diff != "" {
		t.Error(diff)
	}
}

func TestLayerThatIsNoArchiveIsAnErrorAndLeavesNothing(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	ref := registry.Push("junk:v1", images.Image(t, static.NewLayer([]byte("this is no archive"), types.DockerLayer)))
	s := open(t, nil)
	if _, err := s.Pull(t.Context(), ref, nil, nil); err == nil {
		t.Error("it was pulled")
	}
	if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
		t.Fatal(err)
	}
	if got := leftovers(t, s); got["layers"] != 0 || got["ingests"] != 0 {
		t.Errorf("left: %v", got)
	}
}

// While a layer is on its way, the caller sees how much of it is here.
func TestProgressShowsTheLayerOnItsWay(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	layer := big(t, 20, 2_000_000)
	ref := registry.Push("app:v1", images.Image(t, layer))
	release := make(chan struct{})
	registry.Misbehave(images.Fault{Kind: images.Stall, Target: "blobs", Reference: layerDigest(t, layer), Times: 1, Release: release})
	s := open(t, nil)
	halfway := false
	var last Progress
	_, err := s.Pull(t.Context(), ref, nil, func(p Progress) {
		last = p
		if !halfway && p.Phase == Downloading && len(p.Layers) == 1 && p.DoneBytes > 0 && p.DoneBytes < p.TotalBytes {
			halfway = true
			if p.Layers[0].Phase != Downloading || p.Layers[0].Digest.String() != layerDigest(t, layer) {
				t.Errorf("layer is %+v", p.Layers[0])
			}
			close(release)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !halfway || last.Phase != Done || last.Layers[0].ExtractedBytes != last.TotalBytes {
		t.Errorf("halfway %t, last %+v", halfway, last)
	}
	again := Progress{}
	if _, err := s.Pull(t.Context(), ref, nil, func(p Progress) { again = p }); err != nil || again.DoneBytes != again.TotalBytes {
		t.Errorf("%+v %v", again, err)
	}
}

func TestTrackerPhases(t *testing.T) {
	tr := newTracker("r")
	layers := layersOf("one", 100, "two", 50)
	phase := func() Phase { p, _ := tr.report(); return p.Phase }
	steps := []struct {
		do   func()
		want Phase
	}{
		{func() {}, Waiting},
		{func() { tr.enter(Resolving) }, Resolving},
		{func() { tr.enter(Downloading) }, Downloading},
		{func() { tr.expect(layers) }, Downloading},
		{func() { tr.present(layers[1].Digest) }, Downloading},
		{func() { tr.downloaded(layers[0].Digest, 60) }, Downloading},
		{func() { tr.downloaded(layers[0].Digest, 100) }, Extracting},
		{func() { tr.extracted(layers[0], 10) }, Extracting},
		{func() { tr.finish() }, Done},
	}
	for i, s := range steps {
		s.do()
		if got := phase(); got != s.want {
			t.Errorf("step %d: %s, want %s", i, got, s.want)
		}
	}
}
