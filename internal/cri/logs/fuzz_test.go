package logs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever is in a log's files: reading ends, gives the lines that are in the
// format, in order, and the last n of them are those of the last n lines.
func FuzzRead(f *testing.F) {
	const a, b = "2026-01-02T03:04:05Z stdout F a\n", "2026-01-02T03:04:06.5Z stderr P b\n"
	f.Add([]byte(a+b), []byte(b+a), int64(1))
	f.Add([]byte("torn"), []byte(a+"\n\n"+"2026-01-02T03:04:05Z stdout F no end"), int64(2))
	f.Add([]byte{}, []byte("\x00\xff\n\n"), int64(0))
	f.Add(bytes.Repeat([]byte("x"), blockSize+1), []byte(a+strings.Repeat("y", blockSize)+"\n"+b), int64(3))
	f.Add([]byte(a), []byte(b), int64(-1))
	f.Add([]byte(a), []byte(b), int64(1<<63-1))
	f.Fuzz(func(t *testing.T, old, current []byte, n int64) {
		path := filepath.Join(t.TempDir(), "0.log")
		for name, text := range map[string][]byte{path + ".20260102-030405": old, path: current} {
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		read := func(o Options) (texts []string) {
			t.Helper()
			err := Read(t.Context(), path, o, func(e Entry) error {
				texts = append(texts, e.Stream+" "+string(e.Text))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return texts
		}
		// What is to be read, the simple way: whole lines in the format.
		var lines, want []string
		count := 0
		for i, file := range [][]byte{old, current} {
			for line := range bytes.Lines(file) {
				count++
				if bytes.HasSuffix(line, []byte("\n")) {
					lines = append(lines, string(line))
				} else if i == 1 || len(line) > 0 {
					lines = append(lines, "") // counts, and says nothing
				}
			}
		}
		entries := func(lines []string) (texts []string) {
			for _, line := range lines {
				if e, err := Parse([]byte(line)); err == nil {
					texts = append(texts, e.Stream+" "+string(e.Text))
				}
			}
			return texts
		}
		want = entries(lines)
		if got := read(Options{}); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("all: %q, want %q", got, want)
		}
		last := lines[len(lines)-int(min(max(n, 0), int64(len(lines)))):]
		want = entries(last)
		if got := read(Options{Tail: &n}); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("the last %d of %d lines: %q, want %q", n, count, got, want)
		}
		stop := errors.New("stop")
		err := Read(t.Context(), path, Options{}, func(Entry) error { return stop })
		if len(entries(lines)) > 0 != errors.Is(err, stop) {
			t.Errorf("an error of the receiver becomes %v", err)
		}
	})
}
