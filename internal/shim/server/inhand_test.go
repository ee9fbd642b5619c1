package server

import (
	"os"
	"path/filepath"
	"testing"
)

// What a shim had in hand when it was killed is found by the next one, whichever
// step it was killed at: what was not logged with its place in the log, and of what
// was the beginning of a line.
func TestOutputInHandOutlivesTheShim(t *testing.T) {
	const text = "a line\nand more"
	place := logPlace{inode: 7, size: 99}
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

// What a killed shim had written of a batch is taken back, and no more; a file
// that has taken the log's name is let be.
func TestHalfOfAWriteIsTakenBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := newLogFile(path, 0, 1)
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	defer l.close()
	l.note("kept")
	at := logPlace{inode: l.inode, size: l.size}
	l.note("taken back")
	size := func() int64 {
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	for name, c := range map[string]struct{ from logPlace }{
		"another file": {logPlace{inode: at.inode + 1, size: at.size}},
		"no file":      {logPlace{size: at.size}},
	} {
		before := size()
		if err := l.takeBack(c.from); err != nil || size() != before {
			t.Errorf("%s: %d bytes, want %d; %v", name, size(), before, err)
		}
	}
	if err := l.takeBack(at); err != nil || size() != at.size {
		t.Errorf("%d bytes, want %d; %v", size(), at.size, err)
	}
	l.note("after")
	if size() <= at.size {
		t.Error("nothing is written after it")
	}
}
