package imagestore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
)

// PutRequest describes an image to make.
type PutRequest struct {
	Name   string                  // as in Normalize; required
	Config imgspec.Image           // RootFS is filled in
	Layer  func(w io.Writer) error // writes the one layer as a tar archive
	Pinned bool                    // not removed by Prune and Collect
	Labels map[string]string       // kept with the name
}

// Put makes an image of one layer under a name. The image that had the name
// before loses it. Equal input gives an equal image.
func (s *Store) Put(ctx context.Context, r PutRequest) (img Image, err error) {
	name, err := Normalize(r.Name)
	if err != nil {
		return Image{}, err
	}
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Image{}, err
	}
	defer leave()
	ctx, end, err := s.lease(ctx, "make "+name)
	if err != nil {
		return Image{}, err
	}
	defer func() { end(err) }()
	target, err := s.write(ctx, r)
	if err != nil {
		return Image{}, fmt.Errorf("cannot make image %q: %w", name, explain(err))
	}
	f, err := s.obtain(ctx, target, nil, newTracker(name))
	if err != nil {
		return Image{}, fmt.Errorf("cannot make image %q: %w", name, err)
	}
	labels := map[string]string{}
	for k, v := range r.Labels {
		labels[k] = v
	}
	if r.Pinned {
		labels[labelPinned] = "true"
	}
	if err := s.record(ctx, name, target, labels); err != nil {
		return Image{}, err
	}
	s.noteGarbage() // the one that had the name
	return s.get(ctx, f.id.String())
}

// write stores layer, config and manifest.
func (s *Store) write(ctx context.Context, r PutRequest) (imgspec.Descriptor, error) {
	layer, err := s.writeLayer(ctx, r.Layer)
	if err != nil {
		return imgspec.Descriptor{}, fmt.Errorf("cannot write its layer: %w", err)
	}
	r.Config.RootFS = imgspec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.Digest}}
	config, err := s.writeJSON(ctx, imgspec.MediaTypeImageConfig, r.Config)
	if err != nil {
		return imgspec.Descriptor{}, fmt.Errorf("cannot write its config: %w", err)
	}
	manifest, err := s.writeJSON(ctx, imgspec.MediaTypeImageManifest, imgspec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: imgspec.MediaTypeImageManifest,
		Config:    config,
		Layers:    []imgspec.Descriptor{layer},
	})
	if err != nil {
		return imgspec.Descriptor{}, fmt.Errorf("cannot write its manifest: %w", err)
	}
	return manifest, nil
}

// writeLayer stores what fill writes. The digest is known only at the end.
func (s *Store) writeLayer(ctx context.Context, fill func(io.Writer) error) (imgspec.Descriptor, error) {
	ref := "make-" + uuid.NewString()
	w, err := content.OpenWriter(ctx, s.content, content.WithRef(ref))
	if err != nil {
		return imgspec.Descriptor{}, err
	}
	defer w.Close()
	if err := fill(w); err != nil {
		s.abort(context.WithoutCancel(ctx), []string{ref})
		return imgspec.Descriptor{}, err
	}
	status, err := w.Status()
	if err != nil {
		return imgspec.Descriptor{}, err
	}
	desc := imgspec.Descriptor{MediaType: imgspec.MediaTypeImageLayer, Digest: w.Digest(), Size: status.Offset}
	if err := w.Commit(ctx, desc.Size, desc.Digest); err != nil {
		if !errdefs.IsAlreadyExists(err) {
			return imgspec.Descriptor{}, err
		}
		s.abort(ctx, []string{ref})
		return desc, s.leaseBlob(ctx, desc.Digest)
	}
	return desc, nil
}

func (s *Store) writeJSON(ctx context.Context, mediaType string, v any) (imgspec.Descriptor, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return imgspec.Descriptor{}, err
	}
	desc := imgspec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
	return desc, content.WriteBlob(ctx, s.content, "make-"+desc.Digest.String(), bytes.NewReader(raw), desc)
}
