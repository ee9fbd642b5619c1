package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

func files(pairs ...string) Payload {
	p := Payload{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = File{Data: []byte(pairs[i+1]), Mode: 0o644}
	}
	return p
}

func write(t *testing.T, dir string, p Payload) bool {
	t.Helper()
	changed, err := writePayload(dir, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// versions lists what a volume holds beside what containers look for.
func versions(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") && e.Name() != dataLink {
			all = append(all, e.Name())
		}
	}
	return all
}

func TestAVolumeHoldsExactlyTheNewestVersion(t *testing.T) {
	dir := t.TempDir()
	for i, step := range []struct {
		files   Payload
		changed bool
	}{
		{files("a", "1", "sub/x", "2", "sub/deep/y", "3"), true},
		{files("a", "1", "sub/x", "2", "sub/deep/y", "3"), false},
		{files("a", "1", "sub/x", "2"), true},
		{files("a", "1", "sub/x", "two"), true},
		{files("a/b", "a file becomes a folder", "sub", "and a folder a file"), true},
		{files(), true},
		{files(), false},
		{files("back", "again"), true},
	} {
		if changed := write(t, dir, step.files); changed != step.changed {
			t.Errorf("step %d: changed is %v", i, changed)
		}
		want := map[string]string{}
		for name, f := range step.files {
			want[name] = "-rw-r--r-- " + string(f.Data)
		}
		if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
		if v := versions(t, dir); len(v) != 1 {
			t.Errorf("step %d: versions %q", i, v)
		}
	}
}

// A crash may come after any change to the disk. What it leaves is made by hand
// here; the next write must come through, and leave nothing of it.
func TestWritesComeThroughAfterACrash(t *testing.T) {
	crashes := map[string]func(t *testing.T, dir string) error{
		"after the version's folder was made": func(t *testing.T, dir string) error {
			return os.MkdirAll(filepath.Join(dir, "..2026_12_01_00_00_00.1/sub"), 0o755)
		},
		"after the new link was made": func(t *testing.T, dir string) error {
			return os.Symlink("..2026_12_01_00_00_00.1", filepath.Join(dir, newDataLink))
		},
		"before files were linked": func(t *testing.T, dir string) error {
			return os.Remove(filepath.Join(dir, "a"))
		},
		"before links to old files were removed": func(t *testing.T, dir string) error {
			return os.Symlink("..data/gone", filepath.Join(dir, "gone"))
		},
		"with the present version gone": func(t *testing.T, dir string) error {
			target, err := os.Readlink(filepath.Join(dir, dataLink))
			return errors.Join(err, os.RemoveAll(filepath.Join(dir, target)))
		},
		"with a torn file": func(t *testing.T, dir string) error {
			return os.Truncate(filepath.Join(dir, "a"), 1)
		},
	}
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			for _, next := range []Payload{files("a", "old"), files("a", "new", "b", "2")} {
				dir := t.TempDir()
				write(t, dir, files("a", "old"))
				if err := crash(t, dir); err != nil {
					t.Fatal(err)
				}
				write(t, dir, next)
				want := map[string]string{}
				for name, f := range next {
					want[name] = "-rw-r--r-- " + string(f.Data)
				}
				if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if v := versions(t, dir); len(v) != 1 {
					t.Errorf("versions %q", v)
				}
			}
		})
	}
}

// Readers open the version once and must find all its files of one version.
func TestReadersSeeOneVersionOrTheOther(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) Payload {
		p := Payload{}
		for i := range 5 {
			p[fmt.Sprintf("sub/key%d", i)] = File{Data: []byte(fmt.Sprint(n)), Mode: 0o644}
		}
		return p
	}
	write(t, dir, version(0))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := readOnce(dir); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 300 {
		write(t, dir, version(n+1))
	}
	close(stop)
	readers.Wait()
}

// readOnce reads all files through one look at the ..data link. Old versions
// are removed behind a reader's back, as the kubelet does: then it looks again.
func readOnce(dir string) error {
	// The path that containers use must always lead to something.
	if _, err := os.ReadFile(filepath.Join(dir, "sub/key0")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, "sub")); err != nil {
		return fmt.Errorf("the visible link was away: %w", err)
	}
	target, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		return fmt.Errorf("the version link was away: %w", err)
	}
	seen := map[string]bool{}
	for i := range 5 {
		b, err := os.ReadFile(filepath.Join(dir, target, fmt.Sprintf("sub/key%d", i)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // replaced meanwhile
		}
		if err != nil {
			return err
		}
		seen[string(b)] = true
	}
	if len(seen) != 1 {
		return fmt.Errorf("files of versions %v at once", seen)
	}
	return nil
}

func TestOwnersAndModes(t *testing.T) {
	needRoot(t)
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := t.TempDir()
	p := Payload{
		"plain":    {Mode: 0o600},
		"owned":    {Mode: 0o400, User: ptr.To[int64](7)},
		"sub/file": {Mode: 0o755},
	}
	if _, err := writePayload(dir, p, ptr.To[int64](2000)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"plain":    "-rw-r----- 0:2000",
		"owned":    "-r--r----- 7:2000",
		"sub/file": "-rwxr-xr-x 0:2000",
		"sub/":     "dgrwxr-xr-x 0:2000",
		"..data/":  "dgrwxr-xr-x 0:2000",
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		if got := fmt.Sprintf("%v %d:%d", info.Mode(), st.Uid, st.Gid); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestBadFilePathsAreRefused(t *testing.T) {
	for _, bad := range []string{"", ".", "/abs", "../x", "a/../../x", "..data", "..data/x", "a/\x00", strings.Repeat("x", 256)} {
		if checkFilePath(bad) == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	for _, good := range []string{"a", ".hidden", "a/..b", "a/b/c", "...x"[1:]} {
		if strings.HasPrefix(good, "..") {
			continue
		}
		if err := checkFilePath(good); err != nil {
			t.Error(err)
		}
	}
}
