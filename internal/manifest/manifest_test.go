package manifest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/pod-spec.md")

// golden compares got with a file, or rewrites the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update rewrites it:\n%s", path, diff)
	}
}

// Each bad manifest gives exactly the messages that someone once read and found
// good.
func TestBadManifestsSayWhatToDo(t *testing.T) {
	entries, err := os.ReadDir("testdata/bad")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join("testdata/bad", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		_, problems := Decode(e.Name(), data)
		if len(problems) == 0 {
			t.Errorf("%s: no problem was found", e.Name())
		}
		for _, p := range problems {
			if strings.ContainsAny(p.String(), "\n\r\t") {
				t.Errorf("%s: more than one line: %q", e.Name(), p.String())
			}
		}
		b.WriteString(problems.Error() + "\n\n")
	}
	golden(t, "testdata/bad.golden", b.String())
}
