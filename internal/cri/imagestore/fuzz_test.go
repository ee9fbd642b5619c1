package imagestore

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// entriesOf makes the entries of a layer from bytes: three for each, which say
// its kind, its name and what it links to. The words are those that tricks are
// made of.
func entriesOf(data []byte, outside string) []tar.Header {
	kinds := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeFifo}
	up := strings.Repeat("../", 24)
	words := []string{
		"a", "a/b", "a/b/c", "./a", "a/../b", "/a", "a/", ".", "/", "..",
		up + outside, outside, up + outside + "/victim", outside + "/victim", outside + "/new",
		".wh.a", "a/.wh.b", ".wh..wh..opq", "a/.wh..wh..opq", ".wh...", ".wh..", ".wh.", "a/.wh...", "a/victim", "a/new", "a/b/victim", "a/.wh.victim",
		".wh..wh.plnk/x", "a//b", strings.Repeat("n", 200), "a\x00b", "\xff",
	}
	var entries []tar.Header
	for ; len(data) >= 3; data = data[3:] {
		entries = append(entries, tar.Header{
			Typeflag: kinds[int(data[0])%len(kinds)], Name: words[int(data[1])%len(words)], Linkname: words[int(data[2])%len(words)],
			Mode: 0o4777, Devmajor: 1, Devminor: 3,
		})
	}
	return entries
}

// Whatever is in a layer, unpacking it ends, and changes nothing outside of the
// image's own files.
func FuzzLayer(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("needs root: mounts overlayfs")
	}
	const file, folder, symlink, hardlink, device = 0, 1, 2, 3, 4
	for _, seed := range [][]byte{
		{file, 10, 0}, {file, 12, 0}, {file, 13, 0},
		{symlink, 0, 11, file, 23, 0},               // a -> outside, then a/victim
		{symlink, 0, 10, file, 24, 0},               // by dots, then a/new
		{symlink, 0, 11, file, 26, 0},               // a whiteout below it
		{symlink, 0, 11, file, 18, 0},               // an opaque mark below it
		{hardlink, 0, 13, file, 0, 0},               // a hard link to the victim, then written to
		{symlink, 0, 13, file, 0, 0},                // a link to the victim, then written to
		{folder, 0, 0, symlink, 1, 11, file, 25, 0}, // deeper
		{symlink, 0, 11, hardlink, 1, 13},
		{file, 9, 0}, {symlink, 7, 11}, {file, 19, 0}, {file, 20, 0}, {file, 21, 0}, {file, 22, 0},
		{device, 0, 0, file, 0, 0, folder, 0, 0, file, 1, 0},
	} {
		f.Add(seed)
	}
	s := fuzzStore(f, overlayName)
	f.Fuzz(func(t *testing.T, data []byte) {
		outside := t.TempDir()
		victim := filepath.Join(outside, "victim")
		if err := os.WriteFile(victim, []byte("untouched"), 0o600); err != nil {
			t.Fatal(err)
		}
		img, err := s.Put(t.Context(), PutRequest{Name: "fuzz", Layer: func(w io.Writer) error {
			tw := tar.NewWriter(w)
			for _, h := range entriesOf(data, outside) {
				h.ModTime = time.Unix(0, 0)
				content := ""
				if h.Typeflag == tar.TypeReg {
					content = "escaped"
				}
				h.Size = int64(len(content))
				if err := tw.WriteHeader(&h); err != nil {
					continue // a name that no archive can hold
				}
				if _, err := io.WriteString(tw, content); err != nil {
					return err
				}
			}
			return tw.Close()
		}})
		if err == nil {
			for path, content := range contentOf(t, s, img) {
				if string(content) == "untouched" {
					t.Errorf("%s shows a file of the machine", path)
				}
			}
			if err := s.Remove(t.Context(), img.ID); err != nil {
				t.Error(err)
			}
		}
		var left []string
		err = filepath.WalkDir(outside, func(path string, d fs.DirEntry, err error) error {
			if err == nil && path != outside {
				left = append(left, d.Name())
			}
			return err
		})
		if got, readErr := os.ReadFile(victim); err != nil || readErr != nil || string(got) != "untouched" || fmt.Sprint(left) != "[victim]" {
			t.Fatalf("outside there is now %q, the victim is %q (%v, %v)", left, got, err, readErr)
		}
		if info, err := os.Stat(victim); err != nil || info.Mode() != 0o600 {
			t.Fatalf("the victim is %v, %v", info.Mode(), err)
		}
	})
}
