package imagestore

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/testutil/images"
)

// Layers that try to write outside of their filesystem either fail to unpack or
// end up inside of it.
func TestLayersCannotEscape(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	victim := filepath.Join(outside, "victim")
	for _, f := range []string{secret, victim} {
		if err := os.WriteFile(f, []byte("untouched"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name, content string) images.Entry {
		return images.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, Content: []byte(content)}
	}
	link := func(kind byte, name, to string) images.Entry {
		return images.Entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: to, Mode: 0o777}}
	}
	up := "../../../../../../../../../../../.."
	cases := map[string][][]images.Entry{
		"dots":                       {{file(up+victim, "escaped")}},
		"absolute path":              {{file(victim, "escaped")}},
		"symlink then file":          {{link(tar.TypeSymlink, "link", outside), file("link/victim", "escaped")}},
		"relative symlink then file": {{link(tar.TypeSymlink, "link", up+outside), file("link/victim", "escaped")}},
		"symlink in a lower layer":   {{link(tar.TypeSymlink, "link", outside)}, {file("link/victim", "escaped")}},
		"symlink over itself":        {{link(tar.TypeSymlink, "f", victim), file("f", "escaped")}},
		"hard link, then write":      {{link(tar.TypeLink, "f", victim), file("f", "escaped")}},
		"hard link with dots":        {{link(tar.TypeLink, "f", up+secret)}},
		"hard link by a symlink":     {{link(tar.TypeSymlink, "link", outside), link(tar.TypeLink, "f", "link/secret")}},
		"whiteout with dots":         {{file(up+outside+"/.wh.victim", "")}},
		"whiteout by a symlink":      {{link(tar.TypeSymlink, "link", outside), file("link/.wh.victim", "")}},
		"opaque by a symlink":        {{link(tar.TypeSymlink, "link", outside), file("link/.wh..wh..opq", "")}},
	}
	for _, kind := range []string{overlayName, nativeName} {
		s := open(t, func(c *Config) { c.Snapshotter = kind })
		for name, layers := range cases {
			t.Run(kind+"/"+name, func(t *testing.T) {
				built := images.Image(t)
				for _, entries := range layers {
					built = images.Append(t, built, images.RawLayer(t, entries))
				}
				img, err := s.Pull(t.Context(), registry.Push("evil:v1", built), nil, nil)
				if err == nil {
					for path, content := range contentOf(t, s, img) {
						if string(content) == "untouched" {
							t.Errorf("%s shows a file of the machine", path)
						}
					}
				} else {
					t.Logf("refused: %v", err)
				}
				for _, f := range []string{secret, victim} {
					if got, err := os.ReadFile(f); err != nil || string(got) != "untouched" {
						t.Fatalf("%s is now %q, %v", f, got, err)
					}
				}
			})
		}
	}
}
