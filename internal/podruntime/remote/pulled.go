package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Buckets of PullRecords.
const (
	pulledBucket  = "images-pulled"  // by image id: who may use it
	pullingBucket = "images-pulling" // by image name: it is being pulled with a secret
)

// PullRecords remembers pulls from run to run. What is put there may become
// durable a little later, in order; Sync waits for it.
type PullRecords interface {
	All(bucket string) (map[string][]byte, error)
	Put(bucket, name string, value []byte)
	Delete(bucket, name string)
	Sync(ctx context.Context) error
}

// pulled knows which pods may use an image that is here without asking its
// registry. As in the kubelet (KEP-2535, NeverVerifyPreloadedImages) an image of
// which no pull is known was put here by who runs the node, for all. Safe for
// concurrent use.
type pulled struct {
	records PullRecords
	log     *slog.Logger

	mu sync.Mutex
	// images are by id; an entry is replaced with each pull and never changed.
	images map[string]*pulledImage
	// pulling are the pulls with secrets, by the image's full name.
	pulling map[string]*pulling
}

// pulledImage says who may use an image, by its names without tag and digest: a
// login for one repository is none for another one.
type pulledImage struct {
	Names map[string]access `json:"names"`
}

// pulling is what is known of pulls of one name that have begun.
type pulling struct {
	flights int // under way
	// cut says that an earlier one may have brought the image here and was cut
	// off before that was recorded.
	cut bool
}

func newPulled(records PullRecords, log *slog.Logger) (*pulled, error) {
	p := &pulled{records: records, log: log, images: make(map[string]*pulledImage), pulling: make(map[string]*pulling)}
	images, err := records.All(pulledBucket)
	if err != nil {
		return nil, fmt.Errorf("cannot read which images earlier runs have pulled: %w", err)
	}
	for id, data := range images {
		img := &pulledImage{}
		if err := json.Unmarshal(data, img); err != nil {
			log.Warn("what is known of an image's pulls is damaged, each pod asks its registry", "image", id, "err", err)
			img = &pulledImage{}
		}
		p.images[id] = img
	}
	cut, err := records.All(pullingBucket)
	if err != nil {
		return nil, fmt.Errorf("cannot read which images earlier runs were pulling: %w", err)
	}
	for name := range cut {
		p.pulling[name] = &pulling{cut: true}
	}
	return p, nil
}

// access says who may use an image that is here under a name; known is false if
// no pull brought it here.
func (p *pulled) access(img *runtimeapi.Image, named reference.Named) (a access, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.images[img.GetId()]; ok {
		return i.Names[named.Name()], true
	}
	names := append(slices.Concat(img.GetRepoTags(), img.GetRepoDigests()), fullName(named))
	return access{}, slices.ContainsFunc(names, func(n string) bool { return p.pulling[n] != nil })
}

// begin notes, on disk, that a pull with a secret begins. ended must be called.
func (p *pulled) begin(ctx context.Context, named reference.Named) error {
	name := fullName(named)
	p.mu.Lock()
	w := p.pulling[name]
	if w == nil {
		w = &pulling{}
		p.pulling[name] = w
	}
	w.flights++
	p.records.Put(pullingBucket, name, []byte("{}"))
	p.mu.Unlock()
	if err := p.records.Sync(ctx); err != nil {
		p.ended(named, false)
		return fmt.Errorf("cannot record that the pull begins: %w", err)
	}
	return nil
}

// ended says that a pull that begin was called for is over. unsure means that it
// may have brought the image here and nobody called came.
func (p *pulled) ended(named reference.Named, unsure bool) {
	name := fullName(named)
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.pulling[name]
	w.flights--
	w.cut = w.cut || unsure
	p.settle(name, w)
}

// settle forgets pulls that are over. The caller holds mu.
func (p *pulled) settle(name string, w *pulling) {
	if w.flights == 0 && !w.cut {
		delete(p.pulling, name)
		p.records.Delete(pullingBucket, name)
	}
}

// came says that a pull with a login brought an image here; nil: one that each
// pod has. Other names that an image had without a pull go on being for all.
func (p *pulled) came(img *runtimeapi.Image, named reference.Named, login *SecretLogin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := &pulledImage{Names: make(map[string]access)}
	if old, ok := p.images[img.GetId()]; ok {
		maps.Copy(next.Names, old.Names)
	} else {
		for _, n := range slices.Concat(img.GetRepoTags(), img.GetRepoDigests()) {
			if other, err := reference.ParseNormalizedNamed(n); err == nil && p.pulling[n] == nil && other.Name() != named.Name() {
				next.Names[other.Name()] = access{Everyone: true}
			}
		}
	}
	next.Names[named.Name()] = next.Names[named.Name()].with(login)
	p.images[img.GetId()] = next
	data, err := json.Marshal(next)
	if err != nil {
		panic(fmt.Sprintf("remote: a record of a pull cannot be encoded: %v", err))
	}
	p.records.Put(pulledBucket, img.GetId(), data)
	if w := p.pulling[fullName(named)]; w != nil {
		w.cut = false
		p.settle(fullName(named), w)
	}
}

// forget drops what is known of images: they are for all, or gone.
func (p *pulled) forget(images ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range images {
		p.drop(id)
	}
}

// drop forgets one image. The caller holds mu.
func (p *pulled) drop(id string) {
	if p.images[id] != nil {
		delete(p.images, id)
		p.records.Delete(pulledBucket, id)
	}
}

// prune drops what is known of images that list does not give. An image that
// comes meanwhile is kept.
func (p *pulled) prune(list func() ([]*runtimeapi.Image, error)) error {
	p.mu.Lock()
	before := maps.Clone(p.images)
	var cut []string
	for name, w := range p.pulling {
		if w.flights == 0 {
			cut = append(cut, name)
		}
	}
	p.mu.Unlock()
	if len(before)+len(cut) == 0 {
		return nil
	}
	images, err := list()
	if err != nil {
		return err
	}
	here := make(map[string]bool)
	for _, img := range images {
		here[img.GetId()] = true
		for _, n := range slices.Concat(img.GetRepoTags(), img.GetRepoDigests()) {
			here[n] = true
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, img := range before {
		if !here[id] && p.images[id] == img {
			p.drop(id)
		}
	}
	for _, name := range cut {
		if w := p.pulling[name]; w != nil && w.flights == 0 && !here[name] {
			w.cut = false
			p.settle(name, w)
		}
	}
	return nil
}

// fullName is an image's name with registry and tag or digest, as runtimes list it.
func fullName(named reference.Named) string {
	if d, ok := named.(reference.Digested); ok {
		return named.Name() + "@" + d.Digest().String() // whatever tag is beside it
	}
	return reference.TagNameOnly(named).String()
}

// noRecords remembers nothing.
type noRecords struct{}

func (noRecords) All(string) (map[string][]byte, error) { return nil, nil }
func (noRecords) Put(string, string, []byte)            {}
func (noRecords) Delete(string, string)                 {}
func (noRecords) Sync(context.Context) error            { return nil }
