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
	case strings.HasPrefix(name, "sha256:"):
		return idName
	case strings.Contains(name, "@"):
		return repoDigestName
	default:
		return tagName
	}
}

// shortID reports whether ref may be the beginning of an image id, and gives
// the hexadecimal digits.
func shortID(ref string) (hex string, ok bool) {
	hex = strings.TrimPrefix(ref, "sha256:")
	if len(hex) < 4 || len(hex) > 64 {
		return "", false
	}
	for _, c := range hex {
		if !strings.ContainsRune("0123456789abcdef", c) {
			return "", false
		}
	}
	return hex, true
}
