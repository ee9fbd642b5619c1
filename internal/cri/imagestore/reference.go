package imagestore

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// Normalize gives the full form of an image reference as people write it:
// busybox becomes docker.io/library/busybox:latest. A reference with a tag and
// a digest means the digest, and loses its tag.
func Normalize(ref string) (string, error) {
	named, err := parseReference(ref)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}

func parseReference(ref string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		if lower := strings.ToLower(ref); lower != ref {
			if _, lowerErr := reference.ParseDockerRef(lower); lowerErr == nil {
				return nil, fmt.Errorf("%w %q: %w (did you mean %q?)", ErrInvalidReference, ref, err, lower)
			}
		}
		return nil, fmt.Errorf("%w %q: %w", ErrInvalidReference, ref, err)
	}
	return named, nil
}

// digestName is the name under which an image is also kept when it is pulled
// as named: repository and digest.
func digestName(named reference.Named, target digest.Digest) string {
	return reference.TrimNamed(named).String() + "@" + target.String()
}

// nameKind tells the forms of record names apart.
type nameKind int

const (
	tagName nameKind = iota
	repoDigestName
	idName
)

func kindOf(name string) nameKind {
	switch {
	case digest.Digest(name).Validate() == nil: // no normalized name has neither domain nor path
		return idName
	case strings.Contains(name, "@"):
		return repoDigestName
	default:
		return tagName
	}
}

// shortID reports whether ref may be the beginning of an image id, with or
// without the algorithm in front, and gives a test of ids for it.
func shortID(ref string) (begins func(id digest.Digest) bool, ok bool) {
	algorithm, hex, whole := strings.Cut(ref, ":")
	if !whole {
		algorithm, hex = "", ref
	}
	longest := digest.SHA512.Size() * 2
	if whole {
		if !digest.Algorithm(algorithm).Available() {
			return nil, false
		}
		longest = digest.Algorithm(algorithm).Size() * 2
	}
	if len(hex) < 4 || len(hex) > longest || strings.Trim(hex, "0123456789abcdef") != "" {
		return nil, false
	}
	return func(id digest.Digest) bool {
		return (!whole || id.Algorithm().String() == algorithm) && strings.HasPrefix(id.Encoded(), hex)
	}, true
}
