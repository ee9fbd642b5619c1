package logs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// stamp is the time of the i-th line of a test.
func stamp(i int) time.Time { return time.Date(2026, 1, 2, 3, 4, i%60, i, time.UTC) }

func lineOf(i int) string {
	return fmt.Sprintf("%s stdout F line %d\n", stamp(i).Format(time.RFC3339Nano), i)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func tail(n int64) *int64 { return &n }

func TestParse(t *testing.T) {
	for line, want := range map[string]string{
		"2026-01-02T03:04:05.000000006Z stdout F hello world\n": "stdout false hello world",
		"2026-01-02T03:04:05Z stderr P part\n":                  "stderr true part",
		"2026-01-02T03:04:05+02:00 stdout F \n":                 "stdout false ",
		"2026-01-02T03:04:05Z stdout F":                         "stdout false ",
		"2026-01-02T03:04:05Z stdout P:new part":                "stdout true part",
		"2026-01-02T03:04:05Z stdout F  two spaces ":            "stdout false  two spaces ",
	} {
		e, err := Parse([]byte(line))
		if got := fmt.Sprint(e.Stream, " ", e.Partial, " ", string(e.Text)); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{"", "\n", "x", "now stdout F x", "2026-01-02T03:04:05Z stdin F x", "2026-01-02T03:04:05Z stdout X x", "2026-01-02T03:04:05Z stdout "} {
		if _, err := Parse([]byte(line)); err == nil {
			t.Errorf("%q is taken for an entry", line)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05Z stdout F hello\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if e, err := Parse(line); err == nil && e.Stream != Stdout && e.Stream != Stderr {
			t.Errorf("%q", e.Stream)
		}
	})
}

func TestSelection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	// Two rotated files of ten lines, and a current one of five; and others'.
	for i := range 25 {
		name := path
		if i < 20 {
			name = fmt.Sprintf("%s.20260102-03040%d", path, i/10)
		}
		write(t, name, lineOf(i))
	}
	write(t, path+".20260102-030402.gz", "compressed")
	write(t, path+"x.20260102-030402", lineOf(99))
	for name, tt := range map[string]struct {
		opts        Options
		first, last int // last exclusive
	}{
		"everything":                  {Options{}, 0, 25},
		"no lines":                    {Options{Tail: tail(0)}, 25, 25},
		"one line":                    {Options{Tail: tail(1)}, 24, 25},
		"exactly the current file":    {Options{Tail: tail(5)}, 20, 25},
		"one line more":               {Options{Tail: tail(6)}, 19, 25},
		"lines of all files":          {Options{Tail: tail(17)}, 8, 25},
		"more lines than there are":   {Options{Tail: tail(1000)}, 0, 25},
		"since a time":                {Options{Since: stamp(12)}, 12, 25},
		"last lines since a time":     {Options{Since: stamp(12), Tail: tail(3)}, 22, 25},
		"since a time in the current": {Options{Since: stamp(22)}, 22, 25},
	} {
		var got, want strings.Builder
		if err := Copy(t.Context(), path, tt.opts, Format{}, &got, nil); err != nil {
			t.Fatal(err)
		}
		for i := tt.first; i < tt.last; i++ {
			fmt.Fprintf(&want, "line %d\n", i)
		}
		if got.String() != want.String() {
			t.Errorf("%s: %q, want %q", name, got.String(), want.String())
		}
	}
}

func TestTailOfLongLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	long := strings.Repeat("x", blockSize-60)
	for i := range 10 {
		write(t, path, fmt.Sprintf("%s stdout F %d%s\n", stamp(i).Format(time.RFC3339Nano), i, long))
	}
	for n := int64(1); n <= 10; n++ {
		var got strings.Builder
		if err := Copy(t.Context(), path, Options{Tail: tail(n)}, Format{}, &got, nil); err != nil {
			t.Fatal(err)
		}
		if count := strings.Count(got.String(), "\n"); int64(count) != n || got.String()[0] != byte('0'+10-n) {
			t.Errorf("last %d lines: got %d, first %c", n, count, got.String()[0])
		}
	}
}

func TestFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	at := stamp(1).Format(time.RFC3339Nano)
	write(t, path, at+" stdout P a long \n"+at+" stderr F oops\n"+at+" stdout F line\nnonsense\n"+at+" stdout F not finis")
	var out, errOut strings.Builder
	if err := Copy(t.Context(), path, Options{}, Format{}, &out, &errOut); err != nil {
		t.Fatal(err)
	}
	if out.String() != "a long line\n" || errOut.String() != "oops\n" {
		t.Errorf("%q %q", out.String(), errOut.String())
	}
	out.Reset()
	if err := Copy(t.Context(), path, Options{}, Format{Timestamps: true}, &out, nil); err != nil {
		t.Fatal(err)
	}
	if want := at + " a long line\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	for limit, want := range map[int64]string{3: "a l", 12: "a long line\n", 100: "a long line\n"} {
		out.Reset()
		if err := Copy(t.Context(), path, Options{}, Format{LimitBytes: limit}, &out, nil); err != nil || out.String() != want {
			t.Errorf("limit %d: %q, %v", limit, out.String(), err)
		}
	}
	if err := Copy(t.Context(), path+"missing", Options{}, Format{}, &out, nil); err != nil {
		t.Errorf("a log that does not exist: %v", err)
	}
	broken := errors.New("broken pipe")
	if err := Read(t.Context(), path, Options{}, func(Entry) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// A writer rotates quickly; the reader sees each line once, in order, and ends
// with the container.
func TestFollowAcrossRotations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	const lines = 5000
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(ended)
		for i := range lines {
			if i > 0 && i%100 == 0 {
				if err := os.Rename(path, fmt.Sprintf("%s.20260102-%06d", path, i/100)); err != nil {
					t.Error(err)
				}
			}
			text := lineOf(i)
			write(t, path, text[:10]) // a line may be seen half written
			write(t, path, text[10:])
		}
	})
	next := 0
	err := Read(t.Context(), path, Options{Follow: true, Ended: ended}, func(e Entry) error {
		if want := fmt.Sprintf("line %d", next); string(e.Text) != want {
			return fmt.Errorf("got %q, want %q", e.Text, want)
		}
		next++
		return nil
	})
	wg.Wait()
	if err != nil || next != lines {
		t.Errorf("%d lines, %v", next, err)
	}
}

func TestFollowFromTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, lineOf(0)+lineOf(1))
	got := make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Read(ctx, path, Options{Follow: true, Tail: tail(1)}, func(e Entry) error { got <- string(e.Text); return nil })
	}()
	if line := <-got; line != "line 1" {
		t.Errorf("first %q", line)
	}
	write(t, path, lineOf(2))
	if line := <-got; line != "line 2" {
		t.Errorf("then %q", line)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// The log, and only its folder, is there before the container has written.
func TestFollowALogThatIsStillToCome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	ended := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() {
		write(t, path, lineOf(0))
		close(ended)
	})
	n := 0
	if err := Read(t.Context(), path, Options{Follow: true, Ended: ended}, func(Entry) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d lines, %v", n, err)
	}
}
