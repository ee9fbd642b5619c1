package imagestore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image describes an image that is here and unpacked.
type Image struct {
	ID      string        // sha256:… (or of another algorithm), digest of its config for this machine
	Tags    []string      // docker.io/library/busybox:latest; sorted; empty: dangling
	Digests []string      // docker.io/library/busybox@sha256:…; sorted
	Size    int64         // bytes of manifest, config and (compressed) layers
	Spec    imgspec.Image // its config
	// Annotations are those of its manifest. Not to be changed.
	Annotations map[string]string
	Target      digest.Digest // of the manifest or index its first name points to
	ChainID     string        // name of the snapshot of its top layer; empty: it has no layers
	Pinned      bool          // Prune and Collect leave it; Remove doesn't
	Created     time.Time     // since when it is here
	LastUsed    time.Time     // when it was last pulled or a snapshot made of it; zero: not since Open
}

// facts are what can be read from a manifest and the config below it. They
// never change. The fields are not modified after creation.
type facts struct {
	id       digest.Digest
	manifest imgspec.Descriptor
	layers   []imgspec.Descriptor
	spec     imgspec.Image
	notes    map[string]string // annotations of the manifest
	chainID  string
	size     int64
}

// manifestLimitBytes bounds what is held in memory of a registry's answers.
const manifestLimitBytes = 8 << 20

// labelPinned marks the record of an image that is not to be removed.
const labelPinned = "berth.run/pinned"

// readVerified reads a small blob and checks its digest.
func (s *Store) readVerified(ctx context.Context, desc imgspec.Descriptor) ([]byte, error) {
	if desc.Size > manifestLimitBytes {
		return nil, fmt.Errorf("%w: %s has %d bytes, more than %d", ErrNotImage, desc.Digest, desc.Size, manifestLimitBytes)
	}
	raw, err := content.ReadBlob(ctx, s.content, desc)
	if err != nil {
		return nil, err
	}
	if got := desc.Digest.Algorithm().FromBytes(raw); got != desc.Digest {
		return nil, fmt.Errorf("%w: %s has digest %s", ErrDamaged, desc.Digest, got)
	}
	return raw, nil
}

// describe follows target down to the config for this machine.
func (s *Store) describe(ctx context.Context, target imgspec.Descriptor) (*facts, error) {
	s.mu.Lock()
	known, ok := s.described[target.Digest]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	manifestDesc := target
	for depth := 0; images.IsIndexType(manifestDesc.MediaType); depth++ {
		if depth > maxDepth {
			return nil, errTooDeep
		}
		raw, err := s.readVerified(ctx, manifestDesc)
		if err != nil {
			return nil, err
		}
		index, err := parseIndex(raw, manifestDesc)
		if err != nil {
			return nil, err
		}
		if manifestDesc, err = s.pick(ctx, index.Manifests, whatIsHere); err != nil {
			return nil, err
		}
	}
	raw, err := s.readVerified(ctx, manifestDesc)
	if err != nil {
		return nil, err
	}
	manifest, err := parseManifest(raw, manifestDesc)
	if err != nil {
		return nil, err
	}
	raw, err = s.readVerified(ctx, manifest.Config)
	if err != nil {
		return nil, err
	}
	f := &facts{id: manifest.Config.Digest, manifest: manifestDesc, layers: manifest.Layers, notes: manifest.Annotations}
	if f.spec, err = s.parseConfig(raw, manifest); err != nil {
		return nil, err
	}
	f.chainID = identity.ChainID(f.spec.RootFS.DiffIDs).String()
	f.size = manifestDesc.Size + manifest.Config.Size
	for _, l := range manifest.Layers {
		f.size += l.Size
	}
	s.mu.Lock()
	s.described[target.Digest] = f
	s.mu.Unlock()
	return f, nil
}

// whatIsHere loads nothing.
func whatIsHere(context.Context, imgspec.Descriptor) error { return nil }

var errTooDeep = fmt.Errorf("%w: indexes are nested too deep", ErrNotImage)

// checkKind refuses what claims to be both an index and a manifest: who looked at
// it before us may have taken it for the other.
func checkKind(raw []byte, desc imgspec.Descriptor) error {
	var doc struct {
		MediaType string          `json:"mediaType"`
		Config    json.RawMessage `json:"config"`
		Layers    json.RawMessage `json:"layers"`
		Manifests json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return fmt.Errorf("%w: cannot parse %s: %w", ErrNotImage, desc.Digest, err)
	}
	isIndex, isManifest := images.IsIndexType(desc.MediaType), images.IsManifestType(desc.MediaType)
	if isIndex && (len(doc.Config) > 0 || len(doc.Layers) > 0 || images.IsManifestType(doc.MediaType)) ||
		isManifest && (len(doc.Manifests) > 0 || images.IsIndexType(doc.MediaType)) {
		return fmt.Errorf("%w: %s is of type %q and has what other types have", ErrNotImage, desc.Digest, desc.MediaType)
	}
	return nil
}

// parseIndex reads a list of images.
func parseIndex(raw []byte, desc imgspec.Descriptor) (imgspec.Index, error) {
	var index imgspec.Index
	if err := checkKind(raw, desc); err != nil {
		return index, err
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return index, fmt.Errorf("%w: cannot parse index %s: %w", ErrNotImage, desc.Digest, err)
	}
	for _, d := range index.Manifests {
		if err := d.Digest.Validate(); err != nil {
			return index, fmt.Errorf("%w: index %s names digest %q: %w", ErrNotImage, desc.Digest, d.Digest, err)
		}
	}
	return index, nil
}

// parseManifest reads the manifest of one image and refuses other artifacts.
func parseManifest(raw []byte, desc imgspec.Descriptor) (imgspec.Manifest, error) {
	var m imgspec.Manifest
	if !images.IsManifestType(desc.MediaType) {
		return m, fmt.Errorf("%w: media type is %q", ErrNotImage, desc.MediaType)
	}
	if err := checkKind(raw, desc); err != nil {
		return m, err
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%w: cannot parse manifest %s: %w", ErrNotImage, desc.Digest, err)
	}
	if !images.IsConfigType(m.Config.MediaType) {
		return m, fmt.Errorf("%w: its config is of type %q", ErrNotImage, m.Config.MediaType)
	}
	for _, d := range append([]imgspec.Descriptor{m.Config}, m.Layers...) {
		if err := d.Digest.Validate(); err != nil {
			return m, fmt.Errorf("%w: manifest %s names digest %q: %w", ErrNotImage, desc.Digest, d.Digest, err)
		}
	}
	for _, l := range m.Layers {
		if !images.IsLayerType(l.MediaType) {
			return m, fmt.Errorf("%w: a layer is of type %q", ErrNotImage, l.MediaType)
		}
	}
	return m, nil
}

func (s *Store) parseConfig(raw []byte, m imgspec.Manifest) (imgspec.Image, error) {
	var config imgspec.Image
	if err := json.Unmarshal(raw, &config); err != nil {
		return config, fmt.Errorf("%w: cannot parse config %s: %w", ErrNotImage, m.Config.Digest, err)
	}
	for _, d := range config.RootFS.DiffIDs {
		// Snapshots are named by these: nothing else of ours is to be meant.
		if err := d.Validate(); err != nil {
			return config, fmt.Errorf("%w: config %s names digest %q: %w", ErrNotImage, m.Config.Digest, d, err)
		}
	}
	if len(config.RootFS.DiffIDs) != len(m.Layers) {
		return config, fmt.Errorf("%w: config lists %d layers, manifest %d", ErrNotImage, len(config.RootFS.DiffIDs), len(m.Layers))
	}
	if !s.machine.Match(config.Platform) {
		return config, otherPlatform(platforms.Format(config.Platform))
	}
	return config, nil
}

// unpacked reports whether the layers of f are there as a snapshot.
func (s *Store) unpacked(ctx context.Context, f *facts) (bool, error) {
	if f.chainID == "" {
		return true, nil
	}
	_, err := s.snapshotter.Stat(ctx, f.chainID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.stacked, f.chainID)
		if errdefs.IsNotFound(err) {
			err = nil
		}
		return false, err
	}
	s.stacked[f.chainID] = true
	return true, nil
}

// wasUnpacked is unpacked for an image that has a record: as long as it has
// one, its layers stay, so that having seen them once is enough.
func (s *Store) wasUnpacked(ctx context.Context, f *facts) (bool, error) {
	s.mu.Lock()
	seen := s.stacked[f.chainID]
	s.mu.Unlock()
	if seen {
		return true, nil
	}
	return s.unpacked(ctx, f)
}

// List gives all complete images, ordered by id. Records whose data is missing
// or damaged are left out: for the caller they have to be pulled again.
func (s *Store) List(ctx context.Context) ([]Image, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.list(ctx)
}

func (s *Store) list(ctx context.Context) ([]Image, error) {
	records, err := s.images.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list images: %w", err)
	}
	slices.SortFunc(records, func(a, b images.Image) int { return strings.Compare(a.Name, b.Name) })
	byID := map[digest.Digest]*Image{}
	for _, r := range records {
		f, err := s.describe(ctx, r.Target)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			s.log.Debug("image is incomplete", "image", r.Name, "err", err)
			continue
		}
		img, ok := byID[f.id]
		if !ok {
			if ok, err := s.wasUnpacked(ctx, f); err != nil || !ok {
				continue
			}
			img = &Image{
				ID: f.id.String(), Size: f.size, Spec: f.spec, Annotations: f.notes, ChainID: f.chainID,
				Target: r.Target.Digest, Created: r.CreatedAt, LastUsed: s.used(f.id.String()),
			}
			byID[f.id] = img
		}
		switch kindOf(r.Name) {
		case tagName:
			img.Tags = append(img.Tags, r.Name)
		case repoDigestName:
			img.Digests = append(img.Digests, r.Name)
		case idName: // is no name for people
		}
		if r.CreatedAt.Before(img.Created) {
			img.Created = r.CreatedAt
		}
		img.Pinned = img.Pinned || r.Labels[labelPinned] != ""
	}
	all := make([]Image, 0, len(byID))
	for _, img := range byID {
		all = append(all, *img)
	}
	slices.SortFunc(all, func(a, b Image) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// Get finds an image by tag, digest reference, id, or a beginning of its id of
// at least four digits. Names go before short ids. The error is ErrNotFound,
// ErrAmbiguous, or ErrInvalidReference if the text can be neither.
func (s *Store) Get(ctx context.Context, refOrID string) (Image, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Image{}, err
	}
	defer leave()
	return s.get(ctx, refOrID)
}

func (s *Store) get(ctx context.Context, refOrID string) (Image, error) {
	all, err := s.list(ctx)
	if err != nil {
		return Image{}, err
	}
	name, nameErr := Normalize(refOrID)
	for _, img := range all {
		if img.ID == refOrID || digest.Digest(img.ID).Encoded() == refOrID {
			return img, nil
		}
		if nameErr == nil && (slices.Contains(img.Tags, name) || slices.Contains(img.Digests, name)) {
			return img, nil
		}
	}
	begins, isHex := shortID(refOrID)
	if isHex {
		var found []Image
		for _, img := range all {
			if begins(digest.Digest(img.ID)) {
				found = append(found, img)
			}
		}
		switch len(found) {
		case 1:
			return found[0], nil
		case 0:
		default:
			return Image{}, fmt.Errorf("%w: %q", ErrAmbiguous, refOrID)
		}
	}
	if nameErr != nil && !isHex {
		return Image{}, nameErr
	}
	return Image{}, fmt.Errorf("%w: %q", ErrNotFound, refOrID)
}

// record makes name point to target, whatever it pointed to before.
func (s *Store) record(ctx context.Context, name string, target imgspec.Descriptor, labels map[string]string) error {
	// Annotations may be large and say nothing that the blob does not say.
	img := images.Image{Name: name, Labels: labels, Target: imgspec.Descriptor{
		MediaType: target.MediaType, Digest: target.Digest, Size: target.Size,
	}}
	for {
		_, err := s.images.Create(ctx, img)
		if !errdefs.IsAlreadyExists(err) {
			return wrapRecord(name, err)
		}
		_, err = s.images.Update(ctx, img, "target", "labels")
		if !errdefs.IsNotFound(err) {
			return wrapRecord(name, err)
		}
	}
}

func wrapRecord(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot record image %q: %w", name, err)
}

// use notes that the image is used now.
func (s *Store) use(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastUsed[id] = time.Now()
}

// used says when the image was last pulled or a snapshot made of it.
func (s *Store) used(id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastUsed[id]
}
