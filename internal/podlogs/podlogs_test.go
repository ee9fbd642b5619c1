package podlogs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// writer writes logs as berth-shim does.
type writer struct {
	t    *testing.T
	dir  string
	f    *os.File
	path string
	n    int
}

func newWriter(t *testing.T, dir string) *writer {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &writer{t: t, dir: dir}
}

// attempt begins the log of an attempt.
func (w *writer) attempt(n int) {
	w.t.Helper()
	w.path = filepath.Join(w.dir, fmt.Sprintf("%d.log", n))
	w.open()
}

func (w *writer) open() {
	w.t.Helper()
	if w.f != nil {
		w.f.Close()
	}
	var err error
	if w.f, err = os.OpenFile(w.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// lines writes n lines: 1, 2, ….
func (w *writer) lines(n int) {
	w.t.Helper()
	var b strings.Builder
	for range n {
		w.n++
		fmt.Fprintf(&b, "2026-01-02T03:04:05.%09dZ stdout F %d\n", w.n, w.n)
	}
	w.raw(b.String())
}

func (w *writer) raw(text string) {
	w.t.Helper()
	if _, err := w.f.WriteString(text); err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) rotate(stamp string) {
	w.t.Helper()
	if err := os.Rename(w.path, w.path+"."+stamp); err != nil {
		w.t.Fatal(err)
	}
	w.open()
}

// reader collects what a Follower tells.
type reader struct {
	t *testing.T
	f *Follower

	mu      sync.Mutex
	got     []string // ATTEMPT:TEXT
	changed chan struct{}
	ended   chan error
	cancel  context.CancelFunc
}

func follow(t *testing.T) *reader {
	t.Helper()
	r := &reader{t: t, changed: make(chan struct{}, 1), ended: make(chan error, 1)}
	var err error
	r.f, err = NewFollower(func(e Entry) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		text := fmt.Sprintf("%s%d:%s", e.Key, e.Attempt, e.Text)
		if e.Partial {
			text += "…"
		}
		if e.Lost {
			text += "lost"
		}
		r.got = append(r.got, text)
		return nil
	}, func() error {
		select {
		case r.changed <- struct{}{}:
		default:
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.ended <- r.f.Run(ctx) }()
	return r
}

func (r *reader) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// await returns when there are n lines.
func (r *reader) await(n int) {
	r.t.Helper()
	limit := time.After(20 * time.Second)
	for len(r.lines()) < n {
		select {
		case <-r.changed:
		case <-limit:
			r.t.Fatalf("%d lines, want %d", len(r.lines()), n)
		}
	}
}

func (r *reader) wait() []string {
	r.t.Helper()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		r.t.Fatal("it does not end")
	}
	return r.lines()
}

func TestFollowsThroughRotationAndRestarts(t *testing.T) {
	w := newWriter(t, filepath.Join(t.TempDir(), "app"))
	w.attempt(0)
	w.lines(10)
	w.rotate("20260101-000001")
	w.lines(10)
	r := follow(t)
	r.f.Add("", w.dir, Start{})
	r.await(20)
	w.lines(5)
	w.rotate("20260101-000002")
	w.lines(5)
	w.rotate("20260101-000003")
	w.lines(5)
	r.await(35)
	w.attempt(1)
	w.lines(5)
	w.attempt(2)
	w.lines(5)
	r.f.Finish("")
	r.f.Close()
	got := r.wait()
	if len(got) != 45 {
		t.Fatalf("%d lines, want 45: %v", len(got), got)
	}
	for i, l := range got {
		attempt := 0
		if i >= 35 {
			attempt = 1 + (i-35)/5
		}
		if want := fmt.Sprintf("%d:%d", attempt, i+1); l != want {
			t.Errorf("line %d is %s, want %s", i, l, want)
		}
	}
}

func TestReadsWhatWasDeletedUnderIt(t *testing.T) {
	w := newWriter(t, filepath.Join(t.TempDir(), "app"))
	w.attempt(0)
	w.lines(3)
	r := follow(t)
	r.f.Add("", w.dir, Start{})
	r.await(3)
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	w.lines(2) // the last words of a container whose pod goes
	r.f.Finish("")
	r.f.Close()
	if got := r.wait(); len(got) != 5 {
		t.Errorf("got %v", got)
	}
}

func TestRotationFasterThanReading(t *testing.T) {
	w := newWriter(t, filepath.Join(t.TempDir(), "app"))
	w.attempt(0)
	w.lines(3)
	r := follow(t)
	r.f.Add("", w.dir, Start{})
	r.await(3)
	// While the reader looks away, its file and the next one go.
	r.f.mu.Lock()
	w.rotate("20260101-000001")
	w.lines(1)
	w.rotate("20260101-000002")
	w.lines(1)
	w.rotate("20260101-000003")
	w.lines(1)
	for _, n := range []string{"1", "2"} {
		if err := os.Remove(w.path + ".20260101-00000" + n); err != nil {
			t.Fatal(err)
		}
	}
	r.f.mu.Unlock()
	r.f.Finish("")
	r.f.Close()
	got := r.wait()
	// What is gone is gone, and said to be; what is there comes once and in order.
	want := []string{"0:1", "0:2", "0:3", "0:lost", "0:5", "0:6"}
	if !slices.Equal(got, want) && !slices.Equal(got, append(want[:3:3], "0:4", "0:5", "0:6")) {
		t.Errorf("got %v", got)
	}
}

func TestRotationOfTheFileBeingReadIsNoLoss(t *testing.T) {
	w := newWriter(t, filepath.Join(t.TempDir(), "app"))
	w.attempt(0)
	w.lines(1)
	w.rotate("20260101-000001")
	w.lines(1)
	var got []string
	c := &cursor{dir: w.dir, emit: func(_ int, l Line) error {
		got = append(got, fmt.Sprintf("%s lost=%t", l.Text, l.Lost))
		return nil
	}}
	defer c.close()
	if _, err := c.next(); err != nil { // the rotated file is open
		t.Fatal(err)
	}
	if err := c.lookAhead(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.path + ".20260101-000001"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.turn(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1 lost=false", "2 lost=false"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestBeginsBeforeTheEnd(t *testing.T) {
	tail := func(n int) *int { return &n }
	for name, c := range map[string]struct {
		start Start
		want  string
	}{
		"all":                         {Start{}, "0:1 0:2 0:3 0:4 1:5 1:6 1:7"},
		"the last two":                {Start{Tail: tail(2)}, "1:6 1:7"},
		"more than the last file has": {Start{Tail: tail(5)}, "0:3 0:4 1:5 1:6 1:7"},
		"more than there is":          {Start{Tail: tail(50)}, "0:1 0:2 0:3 0:4 1:5 1:6 1:7"},
		"none":                        {Start{Tail: tail(0)}, ""},
		"one attempt only":            {Start{Attempt: 0, Only: true}, "0:1 0:2 0:3 0:4"},
		"the last attempt":            {Start{Attempt: 1}, "1:5 1:6 1:7"},
		"no older than a time":        {Start{Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}, "1:6 1:7"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t, filepath.Join(t.TempDir(), "app"))
			w.attempt(0)
			w.lines(2)
			w.rotate("20260101-000001")
			w.lines(2)
			w.attempt(1)
			w.lines(3)
			r := follow(t)
			r.f.Add("", w.dir, c.start)
			r.f.Finish("")
			r.f.Close()
			if got := strings.Join(r.wait(), " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestTailOfManyLinesOverBlocks(t *testing.T) {
	w := newWriter(t, filepath.Join(t.TempDir(), "app"))
	w.attempt(0)
	w.lines(20000)
	for _, n := range []int{1, 1500, 1999, 19999, 20000} {
		r := follow(t)
		r.f.Add("", w.dir, Start{Tail: &n})
		r.f.Finish("")
		r.f.Close()
		if got := r.wait(); len(got) != n || got[0] != fmt.Sprintf("0:%d", 20000-n+1) {
			t.Errorf("tail %d gives %d lines, the first is %s", n, len(got), got[0])
		}
	}
}

func TestLongLinesAreJoined(t *testing.T) {
	w := newWriter(t, filepath.Join(t.TempDir(), "app"))
	w.attempt(0)
	const at = "2026-01-02T03:04:05Z "
	w.raw(at + "stdout P one \n" + at + "stderr F other\n" + at + "stdout F line\n" + "rubbish\n" + at + "stdout F last\n" + at + "stdout F not ended")
	r := follow(t)
	r.f.Add("", w.dir, Start{})
	r.f.Finish("")
	r.f.Close()
	if got := strings.Join(r.wait(), "|"); got != "0:other|0:one line|0:last" {
		t.Errorf("got %s", got)
	}
}

func TestOneContainerThatFloodsDoesNotStopOthers(t *testing.T) {
	dir := t.TempDir()
	loud, quiet := newWriter(t, filepath.Join(dir, "loud")), newWriter(t, filepath.Join(dir, "quiet"))
	loud.attempt(0)
	loud.lines(200000)
	quiet.attempt(0)
	quiet.lines(1)
	r := follow(t)
	r.f.Add("loud", loud.dir, Start{})
	r.f.Add("quiet", quiet.dir, Start{})
	r.f.Finish("loud")
	r.f.Finish("quiet")
	r.f.Close()
	got := r.wait()
	at := slices.Index(got, "quiet0:1")
	if len(got) != 200001 || at < 0 || at == len(got)-1 {
		t.Errorf("%d lines, the quiet one is at %d", len(got), at)
	}
}

func TestAFolderThatComesLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	r := follow(t)
	r.f.Add("", dir, Start{})
	w := newWriter(t, dir)
	w.attempt(0)
	w.lines(2)
	r.await(2)
	w.lines(1)
	r.await(3)
	r.cancel()
	if err := <-r.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled, it returns %v", err)
	}
}
