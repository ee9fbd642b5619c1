package imagestore

import (
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
)

// progressInterval is the least time between two reports to one caller.
const progressInterval = 100 * time.Millisecond

// Phase is what happens to a layer or an image.
type Phase string

// The phases of a pull, in order. An image is Extracting when nothing is left
// to download.
const (
	Waiting     Phase = "waiting"
	Resolving   Phase = "resolving"
	Downloading Phase = "downloading"
	Extracting  Phase = "extracting"
	Done        Phase = "done"
)

// LayerProgress is how far one layer is.
type LayerProgress struct {
	Digest         digest.Digest
	Phase          Phase // Waiting, Downloading, Extracting, Done
	TotalBytes     int64 // compressed
	DoneBytes      int64 // downloaded, or there before
	ExtractedBytes int64 // of TotalBytes
}

// Progress is how far a pull is. Reports are whole: one that is missed does no
// harm.
type Progress struct {
	Ref        string // full form
	Phase      Phase
	TotalBytes int64 // of all layers; 0 while not known
	DoneBytes  int64
	Layers     []LayerProgress // lowest first; empty while not known
}

// tracker collects the progress of one pull. Safe for concurrent use.
type tracker struct {
	mu      sync.Mutex
	ref     string
	phase   Phase // guarded by mu: Waiting, Resolving, Downloading (then the layers decide), Done
	layers  []*LayerProgress
	byID    map[digest.Digest]*LayerProgress
	changes int // guarded by mu; grows with each change
}

func newTracker(ref string) *tracker {
	return &tracker{ref: ref, phase: Waiting, byID: map[digest.Digest]*LayerProgress{}}
}

// enter moves on to a phase.
func (t *tracker) enter(p Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = p
	t.changes++
}

// expect says which layers the image has.
func (t *tracker) expect(layers []imgspec.Descriptor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes++
	for _, l := range layers {
		if _, ok := t.byID[l.Digest]; !ok {
			p := &LayerProgress{Digest: l.Digest, Phase: Waiting, TotalBytes: l.Size}
			t.layers = append(t.layers, p)
			t.byID[l.Digest] = p
		}
	}
}

// update changes one layer; blobs that are no layers are not counted.
func (t *tracker) update(id digest.Digest, change func(*LayerProgress)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.byID[id]; ok {
		change(l)
		t.changes++
	}
}

// downloaded says that done bytes of a blob are here.
func (t *tracker) downloaded(id digest.Digest, done int64) {
	t.update(id, func(l *LayerProgress) {
		l.DoneBytes = min(done, l.TotalBytes)
		if l.Phase != Done {
			l.Phase = Downloading
		}
	})
}

// extracted says that done bytes of a layer have been unpacked. It fits
// containerd's diff.WithProgress.
func (t *tracker) extracted(desc imgspec.Descriptor, done int64) {
	t.update(desc.Digest, func(l *LayerProgress) {
		l.DoneBytes = l.TotalBytes
		l.ExtractedBytes = min(done, l.TotalBytes)
		l.Phase = Extracting
		if l.ExtractedBytes == l.TotalBytes {
			l.Phase = Done
		}
	})
}

// present says that a layer needs no work.
func (t *tracker) present(id digest.Digest) {
	t.update(id, func(l *LayerProgress) {
		l.DoneBytes, l.ExtractedBytes, l.Phase = l.TotalBytes, l.TotalBytes, Done
	})
}

// finish marks everything done.
func (t *tracker) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = Done
	t.changes++
	for _, l := range t.layers {
		l.DoneBytes, l.ExtractedBytes, l.Phase = l.TotalBytes, l.TotalBytes, Done
	}
}

// report gives the state and a number that differs if the state does.
func (t *tracker) report() (Progress, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := Progress{Ref: t.ref, Phase: t.phase, Layers: make([]LayerProgress, len(t.layers))}
	for i, l := range t.layers {
		p.Layers[i] = *l
		p.TotalBytes += l.TotalBytes
		p.DoneBytes += l.DoneBytes
	}
	if p.Phase == Downloading && len(p.Layers) > 0 && p.DoneBytes == p.TotalBytes {
		p.Phase = Extracting
	}
	return p, t.changes
}
