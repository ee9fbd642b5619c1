package imagestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/unpack"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
)

// obtain brings everything below target here, unpacks it, and says what it is.
// Without a fetcher, the blobs must be here already. If unpacking fails because
// blobs here are damaged, those are dropped and fetched again. It must be
// called with a lease.
func (s *Store) obtain(ctx context.Context, target imgspec.Descriptor, fetcher remotes.Fetcher, t *tracker) (*facts, error) {
	for try := 1; ; try++ {
		opened := &refs{}
		err := s.fetchAndUnpack(ctx, target, fetcher, t, opened)
		var f *facts
		if err == nil {
			f, err = s.describe(ctx, target)
		}
		if err == nil {
			var ok bool
			if ok, err = s.unpacked(ctx, f); err == nil && !ok {
				err = fmt.Errorf("layers of %s were not unpacked", target.Digest)
			}
		}
		if err == nil {
			return f, nil
		}
		err = explain(err)
		if errors.Is(err, ErrNoSpace) {
			s.abort(context.WithoutCancel(ctx), opened.all())
		}
		if ctx.Err() != nil || errors.Is(err, ErrNoSpace) || try == 3 {
			return nil, err
		}
		damaged := s.dropDamaged(ctx, target)
		if damaged == 0 {
			return nil, err
		}
		if fetcher == nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		s.log.Warn("stored image data was damaged, it is fetched again", "digest", target.Digest, "blobs", damaged, "err", err)
	}
}

func (s *Store) fetchAndUnpack(ctx context.Context, target imgspec.Descriptor, fetcher remotes.Fetcher, t *tracker, opened *refs) error {
	ctx, cancel := context.WithCancel(ctx)
	// The unpacker may leave a fetch behind when it fails: nothing may be
	// written after we return.
	var fetches gate
	defer func() {
		cancel()
		fetches.close()
	}()
	get := images.HandlerFunc(func(ctx context.Context, desc imgspec.Descriptor) ([]imgspec.Descriptor, error) {
		if !fetches.enter() {
			return nil, context.Canceled
		}
		defer fetches.leave()
		if err := desc.Digest.Validate(); err != nil {
			return nil, fmt.Errorf("%w: digest %q: %w", ErrNotImage, desc.Digest, err)
		}
		if fetcher == nil {
			return nil, s.present(ctx, desc)
		}
		return nil, s.fetch(ctx, desc, fetcher, t, opened)
	})
	load := func(ctx context.Context, desc imgspec.Descriptor) error {
		_, err := get(ctx, desc)
		return err
	}
	children := images.SetChildrenLabels(s.content, s.children(t, load))
	unpacker, err := unpack.NewUnpacker(ctx, s.content,
		unpack.WithUnpackPlatform(unpack.Platform{
			Platform:       s.machine,
			SnapshotterKey: s.snapshotterName,
			Snapshotter:    s.snapshotter,
			Applier:        s.applier,
			ApplyOpts:      []diff.ApplyOpt{diff.WithProgress(t.extracted)},
		}),
		unpack.WithLimiter(s.fetchs),
		unpack.WithDuplicationSuppressor(s.dedup),
	)
	if err != nil {
		return err
	}
	err = images.Dispatch(ctx, unpacker.Unpack(images.Handlers(get, children)), nil, target)
	if err != nil {
		cancel()
	}
	_, unpackErr := unpacker.Wait()
	if err != nil {
		return err // the unpacker's is only a consequence
	}
	return unpackErr
}

// children says what belongs to this machine's image below a descriptor. load
// brings a blob here that has to be read to know.
func (s *Store) children(t *tracker, load func(context.Context, imgspec.Descriptor) error) images.HandlerFunc {
	return func(ctx context.Context, desc imgspec.Descriptor) ([]imgspec.Descriptor, error) {
		switch {
		case images.IsIndexType(desc.MediaType):
			raw, err := s.readVerified(ctx, desc)
			if err != nil {
				return nil, err
			}
			index, err := parseIndex(raw, desc)
			if err != nil {
				return nil, err
			}
			one, err := s.pick(ctx, index.Manifests, load)
			if err != nil {
				return nil, err
			}
			return []imgspec.Descriptor{one}, nil
		case images.IsManifestType(desc.MediaType):
			raw, err := s.readVerified(ctx, desc)
			if err != nil {
				return nil, err
			}
			m, err := parseManifest(raw, desc)
			if err != nil {
				return nil, err
			}
			t.expect(m.Layers)
			s.markUnpacked(ctx, m, t)
			return append([]imgspec.Descriptor{m.Config}, m.Layers...), nil
		case images.IsConfigType(desc.MediaType), images.IsLayerType(desc.MediaType):
			return nil, nil
		default:
			return nil, fmt.Errorf("%w: media type is %q", ErrNotImage, desc.MediaType)
		}
	}
}

// markUnpacked tells the tracker which layers are here as snapshots, if the
// config is here already to tell. It is only about progress.
func (s *Store) markUnpacked(ctx context.Context, m imgspec.Manifest, t *tracker) {
	var config imgspec.Image
	raw, err := s.readVerified(ctx, m.Config)
	if err == nil {
		config, err = s.parseConfig(raw, m)
	}
	if err != nil {
		return // not here, or not usable, which is noticed when it is fetched
	}
	chain := identity.ChainIDs(append([]digest.Digest(nil), config.RootFS.DiffIDs...))
	for i, l := range m.Layers {
		if _, err := s.snapshotter.Stat(ctx, chain[i].String()); err != nil {
			return
		}
		t.present(l.Digest)
	}
}

// fetch brings one blob here. It goes on where an earlier try stopped.
func (s *Store) fetch(ctx context.Context, desc imgspec.Descriptor, fetcher remotes.Fetcher, t *tracker, opened *refs) error {
	small := !images.IsLayerType(desc.MediaType)
	if small && desc.Size > manifestLimitBytes {
		return fmt.Errorf("%w: %s has %d bytes, more than %d", ErrNotImage, desc.Digest, desc.Size, manifestLimitBytes)
	}
	ref := remotes.MakeRefKey(ctx, desc)
	opened.add(ref)
	counted := func(came func()) remotes.FetcherFunc {
		return func(ctx context.Context, desc imgspec.Descriptor) (io.ReadCloser, error) {
			rc, err := fetcher.Fetch(ctx, desc)
			if err != nil {
				return nil, err
			}
			return &countingReader{ReadCloser: rc, report: func(n int64) {
				came()
				t.downloaded(desc.Digest, n)
			}}, nil
		}
	}
	err := s.retry(ctx, func() error {
		err := s.unstalled(ctx, func(ctx context.Context, came func()) error {
			return remotes.Fetch(ctx, s.content, counted(came), desc)
		})
		switch {
		case errdefs.IsAlreadyExists(err):
			if small {
				if _, err := s.readVerified(ctx, desc); errors.Is(err, ErrDamaged) || errors.Is(err, io.ErrUnexpectedEOF) {
					s.drop(ctx, desc.Digest)
					return fmt.Errorf("%w: %w", ErrDamaged, err)
				}
			}
			t.downloaded(desc.Digest, desc.Size)
			return nil
		case wrongDigest(err):
			// What was written so far cannot be used to go on from.
			s.abort(ctx, []string{ref})
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		case noRange(err):
			s.abort(ctx, []string{ref})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot fetch %s: %w", desc.Digest, err)
	}
	return nil
}

// present checks that a blob which cannot be fetched is here.
func (s *Store) present(ctx context.Context, desc imgspec.Descriptor) error {
	info, err := s.content.Info(ctx, desc.Digest)
	switch {
	case errdefs.IsNotFound(err):
		return fmt.Errorf("%w: blob %s is missing or has another content", ErrDamaged, desc.Digest)
	case err != nil:
		return err
	case info.Size != desc.Size:
		return fmt.Errorf("%w: blob %s has %d bytes, want %d", ErrDamaged, desc.Digest, info.Size, desc.Size)
	}
	return s.leaseBlob(ctx, desc.Digest)
}

// dropDamaged checks all blobs below target that are here, removes those with
// a wrong digest and says how many these were.
func (s *Store) dropDamaged(ctx context.Context, target imgspec.Descriptor) (dropped int) {
	check := images.HandlerFunc(func(ctx context.Context, desc imgspec.Descriptor) ([]imgspec.Descriptor, error) {
		err := s.verify(ctx, desc)
		if errors.Is(err, ErrDamaged) {
			s.drop(ctx, desc.Digest)
			dropped++
			return nil, images.ErrSkipDesc
		}
		if err != nil {
			return nil, images.ErrSkipDesc
		}
		next, err := images.Children(ctx, s.content, desc)
		if err != nil {
			return nil, images.ErrSkipDesc
		}
		return next, nil
	})
	if err := images.Walk(ctx, check, target); err != nil {
		s.log.Debug("cannot check stored image data", "digest", target.Digest, "err", err)
	}
	return dropped
}

// verify reads a blob and compares its digest.
func (s *Store) verify(ctx context.Context, desc imgspec.Descriptor) error {
	ra, err := s.content.ReaderAt(ctx, desc)
	if err != nil {
		return err
	}
	defer ra.Close()
	v := desc.Digest.Verifier()
	if _, err := io.Copy(v, content.NewReader(ra)); err != nil {
		return err
	}
	if !v.Verified() {
		return fmt.Errorf("%w: %s", ErrDamaged, desc.Digest)
	}
	return nil
}

// drop removes a damaged blob from the database and from the disk: the
// database alone would find the file and believe it.
func (s *Store) drop(ctx context.Context, id digest.Digest) {
	for _, from := range []content.Store{s.content, s.blobs} {
		if err := from.Delete(ctx, id); err != nil && !errdefs.IsNotFound(err) {
			s.log.Warn("cannot remove damaged image data", "digest", id, "err", err)
		}
	}
}

// abort removes partly written blobs.
func (s *Store) abort(ctx context.Context, refs []string) {
	for _, ref := range refs {
		if err := s.content.Abort(ctx, ref); err != nil && !errdefs.IsNotFound(err) {
			s.log.Warn("cannot remove a partly fetched blob", "ref", ref, "err", err)
		}
	}
}

// refs remembers which blobs a pull began to write. Safe for concurrent use.
type refs struct {
	mu   sync.Mutex
	list []string
}

func (r *refs) add(ref string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, ref)
}

func (r *refs) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.list...)
}

// countingReader reports its position. It can seek if what it reads can, which
// is how a fetch goes on in the middle.
type countingReader struct {
	io.ReadCloser
	at     int64
	report func(int64)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.at += int64(n)
	c.report(c.at)
	return n, err
}

func (c *countingReader) Seek(offset int64, whence int) (int64, error) {
	seeker, ok := c.ReadCloser.(io.Seeker)
	if !ok {
		return 0, errors.New("cannot seek in what the registry sends")
	}
	at, err := seeker.Seek(offset, whence)
	if err == nil {
		c.at = at
	}
	return at, err
}
