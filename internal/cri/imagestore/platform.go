package imagestore

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
)

// machine matches what runs here. Images that don't say for which platform
// they are made are believed to fit.
type machine struct{ platforms.MatchComparer }

func thisMachine() machine { return machine{platforms.Default()} }

// Match implements platforms.Matcher.
func (m machine) Match(p imgspec.Platform) bool {
	return p.Architecture == "" || m.MatchComparer.Match(p)
}

// rank lists the entries of an index that may fit this machine, best first.
// Those that don't name a platform come last. If there is none, the error lists
// what there is.
func rank(m platforms.MatchComparer, manifests []imgspec.Descriptor) ([]imgspec.Descriptor, error) {
	var fit []imgspec.Descriptor
	var have []string
	for _, d := range manifests {
		if isAttestation(d) || !(images.IsManifestType(d.MediaType) || images.IsIndexType(d.MediaType)) {
			continue
		}
		if d.Platform != nil {
			have = append(have, platforms.Format(*d.Platform))
		}
		if d.Platform == nil || m.Match(*d.Platform) {
			fit = append(fit, d)
		}
	}
	if len(fit) == 0 {
		if len(have) == 0 {
			return nil, fmt.Errorf("%w: the index lists no image", ErrNotImage)
		}
		return nil, otherPlatform(strings.Join(have, ", "))
	}
	sort.SliceStable(fit, func(i, j int) bool {
		switch a, b := fit[i].Platform, fit[j].Platform; {
		case a == nil:
			return false
		case b == nil:
			return true
		default:
			return m.Less(*a, *b)
		}
	})
	return fit, nil
}

func otherPlatform(have string) error {
	return fmt.Errorf("%w: it is there for %s, not for %s", ErrPlatform, have, platforms.Format(platforms.DefaultSpec()))
}

// maxDepth is how deep indexes may be nested.
const maxDepth = 4

// pick chooses the entry of an index that fits this machine best. If several
// may, those that don't name a platform are looked into: load is called for each
// blob that is to be read and brings it here.
func (s *Store) pick(ctx context.Context, manifests []imgspec.Descriptor, load func(context.Context, imgspec.Descriptor) error) (imgspec.Descriptor, error) {
	return s.pickBelow(ctx, manifests, load, 1)
}

func (s *Store) pickBelow(ctx context.Context, manifests []imgspec.Descriptor, load func(context.Context, imgspec.Descriptor) error, depth int) (imgspec.Descriptor, error) {
	fit, err := rank(s.machine, manifests)
	if err != nil {
		return imgspec.Descriptor{}, err
	}
	if fit[0].Platform != nil || len(fit) == 1 {
		return fit[0], nil
	}
	var why error
	for _, d := range fit {
		err := s.fits(ctx, d, load, depth)
		if err == nil {
			return d, nil
		}
		if ctx.Err() != nil {
			return imgspec.Descriptor{}, err
		}
		// That one can't be read says more than that another is for elsewhere.
		if why == nil || errors.Is(why, ErrPlatform) {
			why = err
		}
	}
	return imgspec.Descriptor{}, why
}

// fits looks into an image, or an index of some, for whether it is for this
// machine.
func (s *Store) fits(ctx context.Context, desc imgspec.Descriptor, load func(context.Context, imgspec.Descriptor) error, depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	if err := load(ctx, desc); err != nil {
		return err
	}
	raw, err := s.readVerified(ctx, desc)
	if err != nil {
		return err
	}
	if images.IsIndexType(desc.MediaType) {
		index, err := parseIndex(raw, desc)
		if err != nil {
			return err
		}
		one, err := s.pickBelow(ctx, index.Manifests, load, depth+1)
		if err != nil {
			return err
		}
		if one.Platform != nil {
			return nil
		}
		return s.fits(ctx, one, load, depth+1)
	}
	m, err := parseManifest(raw, desc)
	if err != nil {
		return err
	}
	if err := load(ctx, m.Config); err != nil {
		return err
	}
	if raw, err = s.readVerified(ctx, m.Config); err != nil {
		return err
	}
	_, err = s.parseConfig(raw, m)
	return err
}

// isAttestation reports whether an index entry only describes another one
// (build provenance, bill of materials).
func isAttestation(d imgspec.Descriptor) bool {
	return d.Annotations["vnd.docker.reference.type"] == "attestation-manifest"
}
