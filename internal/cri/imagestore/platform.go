package imagestore

import (
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

// pick chooses the manifest of an index that fits this machine best. Those that
// don't name a platform come last. The error lists what there is.
func pick(m platforms.MatchComparer, manifests []imgspec.Descriptor) (imgspec.Descriptor, error) {
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
			return imgspec.Descriptor{}, fmt.Errorf("%w: the index lists no image", ErrNotImage)
		}
		return imgspec.Descriptor{}, fmt.Errorf("%w: it is there for %s, not for %s",
			ErrPlatform, strings.Join(have, ", "), platforms.Format(platforms.DefaultSpec()))
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
	return fit[0], nil
}

// isAttestation reports whether an index entry only describes another one
// (build provenance, bill of materials).
func isAttestation(d imgspec.Descriptor) bool {
	return d.Annotations["vnd.docker.reference.type"] == "attestation-manifest"
}
