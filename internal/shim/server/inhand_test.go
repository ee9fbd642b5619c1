package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What a shim had in hand when it was killed is found by the next one, whichever
// step it was killed at: what was not logged with its place in the log, and of what
// was the beginning of a line.
func TestOutputInHandOutlivesTheShim(t *testing.T) {
	const text = "a line\nand more"
	place := logPlace{inode: 7, size: 99, stamp: 1234}
	for name, c := range map[string]struct {
		kill       func(h *inHand)
		data       string
		at         logPlace
		incomplete string // of what is logged
	}{
		"before anything":            {kill: func(*inHand) {}},
		"after the copy":             {kill: func(h *inHand) { copy(h.space(), text) }, data: text},
		"after the note of its size": {kill: func(h *inHand) { copy(h.space(), text+"\x00"); h.took(len(text) + 1) }, data: text + "\x00"},
		"while it was logged": {kill: func(h *inHand) {
			copy(h.space(), text)
			h.took(len(text))
			h.begins(place)
		}, data: text, at: place},
		"after it was logged": {kill: func(h *inHand) {
			copy(h.space(), text)
			h.took(len(text))
			h.begins(place)
			h.logged(len(text), len("and more"))
		}, data: text, at: place, incomplete: "and more"},
		"after it was logged, and no line ended": {kill: func(h *inHand) {
			copy(h.space(), text)
			h.took(len(text))
			h.logged(len(text), len("kept")+len(text))
		}, data: text, incomplete: "kept" + text},
		"after it was dropped": {kill: func(h *inHand) {
			copy(h.space(), text)
			h.took(len(text))
			h.begins(place)
			h.logged(len(text), 0)
			h.drop(len(text))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "stdout.hand")
			h, l, err := openInHand(path)
			if err != nil || len(l.data) != 0 {
				t.Fatalf("%q in hand of a new one, %v", l.data, err)
			}
			c.kill(h)
			h.close() // the mapping is shared: what was stored is in the file
			h, l, err = openInHand(path)
			if err != nil || string(l.data) != c.data || l.logPlace != c.at {
				t.Errorf("%q in hand for %+v, want %q for %+v; %v", l.data, l.logPlace, c.data, c.at, err)
			}
			// What is kept elsewhere may be as before or as after the logging.
			for _, kept := range []string{"kept", "kept" + text} {
				if got := string(l.incomplete([]byte(kept))); l.logged && got != c.incomplete {
					t.Errorf("%q is incomplete, want %q", got, c.incomplete)
				}
			}
			if l.logged != (c.incomplete != "") {
				t.Errorf("logged: %v", l.logged)
			}
			h.drop(len(l.data))
			h.close()
			h, l, err = openInHand(path)
			if err != nil || len(l.data) != 0 || l.inode != 0 {
				t.Errorf("%+v is left of what was dropped, %v", l, err)
			}
			h.close()
		})
	}
}

// Where there is no space, output is read all the same.
func TestOutputInHandWithoutAFile(t *testing.T) {
	h, l, err := openInHand(filepath.Join(t.TempDir(), "none", "stdout.hand"))
	if !os.IsNotExist(err) || len(l.data) != 0 || len(h.space()) != inHandSize {
		t.Fatalf("%d bytes left, %d of space, %v", len(l.data), len(h.space()), err)
	}
	h.took(3)
	h.begins(logPlace{inode: 1})
	h.logged(3, 0)
	h.drop(3)
	h.close()
}

// A shim that was killed at any point of a write to the log: the next one goes on
// at that point, so that who follows the log sees nothing twice. What is not the
// beginning of the same is taken back; a file that has taken the log's name is let
// be.
func TestCutOffWriteGoesOn(t *testing.T) {
	const data = "one\ntwo\nand more"
	dir := t.TempDir()
	hand := func() *inHand { return &inHand{mem: make([]byte, inHandHead+inHandSize)} }
	whole := newLogFile(filepath.Join(dir, "whole"), 0, 1)
	if err := whole.open(); err != nil {
		t.Fatal(err)
	}
	defer whole.close()
	whole.note("before")
	h := hand()
	at := logPlace{size: whole.size}
	if got := whole.ingest("stdout", []byte("half of "), []byte(data), h); string(got) != "and more" {
		t.Fatalf("%q is incomplete", got)
	}
	at.stamp = int64(*h.word(inHandStamp))
	want, err := os.ReadFile(whole.path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := at.size; cut <= int64(len(want)); cut++ {
		for name, c := range map[string]struct {
			there string // in the file when it was cut off
			same  bool   // as far as it goes
		}{
			"cut off":        {string(want[:cut]), true},
			"something else": {string(want[:at.size]) + "something else"[:min(14, cut-at.size)], false},
		} {
			path := filepath.Join(dir, "log")
			if err := os.WriteFile(path, []byte(c.there), 0o600); err != nil {
				t.Fatal(err)
			}
			l := newLogFile(path, 0, 1)
			if err := l.open(); err != nil {
				t.Fatal(err)
			}
			at.inode = l.inode
			if err := l.resume(at); err != nil {
				t.Fatal(err)
			}
			l.ingest("stdout", []byte("half of "), []byte(data), hand())
			got, err := os.ReadFile(path)
			if err != nil || c.same && cut > at.size && string(got) != string(want) || len(got) < len(want)-10 || string(got[:at.size]) != string(want[:at.size]) {
				t.Fatalf("%s after %d bytes: %q, want %q; %v", name, cut, got, want, err)
			}
			l.finish("stdout", []byte("after"))
			if fi, err := os.Stat(path); err != nil || fi.Size() != l.size {
				t.Fatalf("%s: %d bytes, thought to be %d; %v", name, fi.Size(), l.size, err)
			}
			l.close()
			at.inode++
			if err := l.open(); err != nil {
				t.Fatal(err)
			}
			if err := l.resume(at); err != nil || len(l.written) != 0 {
				t.Fatalf("another file is resumed: %v", err)
			}
			l.close()
		}
	}
}

// Of two streams the one whose write was cut off goes on first, whichever it is:
// what the other had in hand comes behind it.
func TestTheCutOffStreamGoesFirst(t *testing.T) {
	for _, cut := range []string{"stdout", "stderr"} {
		other := map[string]string{"stdout": "stderr", "stderr": "stdout"}[cut]
		dir := t.TempDir()
		poll, err := newPoller()
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{cfg: Config{RunDir: dir}, log: slog.New(slog.DiscardHandler), poll: poll}
		c := s.newContainer("a", state{ID: "a"})
		if err := os.MkdirAll(c.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c.log = newLogFile(filepath.Join(dir, "log"), 0, 1)
		if err := c.log.open(); err != nil {
			t.Fatal(err)
		}
		hands := make(map[string]*inHand)
		for _, name := range []string{"stdout", "stderr"} {
			if err := unix.Mkfifo(filepath.Join(c.dir, name), 0o600); err != nil {
				t.Fatal(err)
			}
			h, _, err := openInHand(filepath.Join(c.dir, name+".hand"))
			if err != nil {
				t.Fatal(err)
			}
			h.took(copy(h.space(), "of "+name+"\n"))
			hands[name] = h
		}
		// Written but for its last byte, when the shim was killed.
		before := hands[cut].word(inHandState)
		took := *before
		c.log.ingest(cut, nil, []byte("of "+cut+"\n"), hands[cut])
		*before = took
		if err := os.Truncate(c.log.path, c.log.size-1); err != nil {
			t.Fatal(err)
		}
		for _, h := range hands {
			h.close()
		}
		if err := c.log.reopen(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"stdout", "stderr"} {
			if err := c.openOutput(name); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.followStreams(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(c.log.path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
		if len(lines) != 2 || !strings.HasSuffix(lines[0], cut+" F of "+cut) || !strings.HasSuffix(lines[1], other+" F of "+other) {
			t.Errorf("%s was cut off: %q", cut, got)
		}
		c.release()
		unix.Close(poll.epfd)
		unix.Close(poll.wakefd)
	}
}
