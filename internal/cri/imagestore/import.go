package imagestore

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/platforms"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
)

// ingestPrefix begins the names under which the archive reader writes blobs.
const ingestPrefix = "tar-"

// Import reads images from a file or folder: an OCI layout folder, or an OCI or
// docker archive, plain or compressed with gzip or zstd; which of them it is, is
// found out. Of images for several platforms, the one for this machine is
// taken. Images without a name can be used by their id; an OCI reference that
// is only a tag is joined to the name of the file or folder.
func (s *Store) Import(ctx context.Context, from string) ([]Image, error) {
	info, err := os.Stat(from)
	if err != nil {
		return nil, fmt.Errorf("cannot import image: %w", err)
	}
	base := baseName(from)
	var imported []Image
	if info.IsDir() {
		if _, err := os.Stat(filepath.Join(from, imgspec.ImageLayoutFile)); err != nil {
			return nil, fmt.Errorf("cannot import image from folder %q: %w: it has no %s file, so it is no OCI layout",
				from, ErrNotImage, imgspec.ImageLayoutFile)
		}
		r, w := io.Pipe()
		written := make(chan error, 1)
		go func() {
			err := writeLayout(w, from)
			written <- errors.Join(err, w.CloseWithError(err))
		}()
		imported, err = s.importStream(ctx, r, base)
		r.Close()
		if writeErr := <-written; err == nil && writeErr != nil && !errors.Is(writeErr, io.ErrClosedPipe) {
			err = writeErr
		}
	} else {
		f, openErr := os.Open(from)
		if openErr != nil {
			return nil, fmt.Errorf("cannot import image: %w", openErr)
		}
		defer f.Close()
		imported, err = s.importStream(ctx, f, base)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot import image from %q: %w", from, err)
	}
	return imported, nil
}

// ImportReader is Import for an archive that comes as a stream.
func (s *Store) ImportReader(ctx context.Context, r io.Reader) ([]Image, error) {
	imported, err := s.importStream(ctx, r, "")
	if err != nil {
		return nil, fmt.Errorf("cannot import image: %w", err)
	}
	return imported, nil
}

func (s *Store) importStream(ctx context.Context, r io.Reader, base string) (_ []Image, err error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	// The archive reader names what it writes by the archive's file names, so
	// two at once would mix their blobs.
	select {
	case s.importing <- struct{}{}:
		defer func() { <-s.importing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, end, err := s.lease(ctx, "import")
	if err != nil {
		return nil, err
	}
	defer func() {
		s.abortImports(context.WithoutCancel(ctx))
		end(err)
		s.noteGarbage()
	}()
	s.abortImports(ctx)

	index, err := s.readArchive(ctx, r)
	if err != nil {
		return nil, explain(err)
	}
	named, err := groupByName(index, base)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, entry := range named {
		target, err := s.pick(ctx, entry.manifests, s.present)
		if err != nil {
			return nil, entry.wrap(err)
		}
		f, err := s.obtain(ctx, target, nil, newTracker(entry.name))
		if err != nil {
			return nil, entry.wrap(err)
		}
		if entry.name != "" {
			if err := s.record(ctx, entry.name, target, nil); err != nil {
				return nil, explain(err)
			}
		}
		if err := s.record(ctx, f.id.String(), target, nil); err != nil {
			return nil, explain(err)
		}
		if !slices.Contains(ids, f.id.String()) {
			ids = append(ids, f.id.String())
		}
	}
	imported := make([]Image, len(ids))
	for i, id := range ids {
		if imported[i], err = s.get(ctx, id); err != nil {
			return nil, err
		}
		s.log.Info("image imported", "image", strings.Join(imported[i].Tags, " "), "id", id)
	}
	return imported, nil
}

// tarBlock is the size of the smallest part of an archive, in bytes.
const tarBlock = 512

// readArchive stores all blobs of an archive and gives its top index.
func (s *Store) readArchive(ctx context.Context, r io.Reader) (imgspec.Index, error) {
	var index imgspec.Index
	plain, err := compression.DecompressStream(&contextReader{ctx: ctx, r: r})
	if err != nil {
		return index, fmt.Errorf("cannot decompress: %w", err)
	}
	defer plain.Close()
	in := bufio.NewReaderSize(plain, tarBlock)
	if _, err := in.Peek(tarBlock); errors.Is(err, io.EOF) {
		return index, fmt.Errorf("%w: it is no OCI layout, OCI archive or docker archive: those have %d bytes and more", ErrNotImage, tarBlock)
	}
	desc, err := archive.ImportIndex(ctx, s.content, in)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return index, ctx.Err()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return index, fmt.Errorf("%w: the archive is cut off: %w", ErrDamaged, err)
	case errors.Is(explain(err), ErrNoSpace):
		return index, err
	default:
		return index, fmt.Errorf("%w: it is no OCI layout, OCI archive or docker archive, or a damaged one: %w", ErrNotImage, err)
	}
	raw, err := s.readVerified(ctx, desc)
	if err != nil {
		return index, err
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return index, fmt.Errorf("%w: cannot parse its index: %w", ErrNotImage, err)
	}
	return index, nil
}

func (s *Store) abortImports(ctx context.Context) {
	under, err := s.content.ListStatuses(ctx)
	if err != nil {
		s.log.Debug("cannot list partly written blobs", "err", err)
		return
	}
	for _, w := range under {
		if strings.HasPrefix(w.Ref, ingestPrefix) {
			s.abort(ctx, []string{w.Ref})
		}
	}
}

// archiveEntry is one image of an archive.
type archiveEntry struct {
	name      string // full form; empty: none
	manifests []imgspec.Descriptor
}

func (e archiveEntry) wrap(err error) error {
	if e.name == "" {
		return err
	}
	return fmt.Errorf("image %q: %w", e.name, err)
}

// has says whether a variant for that platform is among the manifests. One that
// does not say its platform is like any other.
func (e archiveEntry) has(p *imgspec.Platform) bool {
	return slices.ContainsFunc(e.manifests, func(d imgspec.Descriptor) bool {
		return p == nil || d.Platform == nil || platforms.FormatAll(*p) == platforms.FormatAll(*d.Platform)
	})
}

// groupByName sorts the entries of an archive's index into images: entries of
// one name are variants of one image. So are those without any, if they are for
// different platforms; else they are images of their own. It is pure.
func groupByName(index imgspec.Index, base string) ([]archiveEntry, error) {
	var entries []archiveEntry
	for _, d := range index.Manifests {
		if isAttestation(d) {
			continue
		}
		name, err := entryName(d, base)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(entries, func(e archiveEntry) bool {
			return e.name == name && (name != "" || !e.has(d.Platform))
		})
		if at < 0 {
			entries = append(entries, archiveEntry{name: name})
			at = len(entries) - 1
		}
		entries[at].manifests = append(entries[at].manifests, d)
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("%w: it holds no image", ErrNotImage)
	}
	return entries, nil
}

// entryName finds the name of an index entry in its annotations.
func entryName(d imgspec.Descriptor, base string) (string, error) {
	name := d.Annotations[images.AnnotationImageName]
	if name == "" {
		name = d.Annotations[imgspec.AnnotationRefName]
		if name != "" && !strings.ContainsAny(name, ":/@") {
			if base == "" {
				return "", nil
			}
			name = base + ":" + name
		}
	}
	if name == "" {
		return "", nil
	}
	return Normalize(name)
}

// baseName makes an image name of a file name, or nothing if that is not
// possible.
func baseName(file string) string {
	base := strings.ToLower(filepath.Base(filepath.Clean(file)))
	for _, ext := range []string{".gz", ".tgz", ".zst", ".tar", ".oci"} {
		base = strings.TrimSuffix(base, ext)
	}
	if _, err := Normalize(base + ":latest"); err != nil {
		return ""
	}
	return base
}

// writeLayout writes the files of an OCI layout folder as a tar archive.
func writeLayout(w io.Writer, root string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case name == imgspec.ImageLayoutFile, name == imgspec.ImageIndexFile, strings.HasPrefix(name, imgspec.ImageBlobsDir+"/"):
			return copyToTar(tw, file, path.Clean(name))
		}
		return nil
	})
	return errors.Join(err, tw.Close())
}

func copyToTar(tw *tar.Writer, file, name string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file", ErrNotImage, file)
	}
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size(), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}

// contextReader ends reading when its context does. It lives as long as one
// call, which is why it may hold the context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
