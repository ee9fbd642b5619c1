package server

import (
	"os"
	"path/filepath"
	"testing"
)

// What a shim had in hand when it was killed is found by the next one, whichever
// step it was killed at, and only if it was not logged.
func TestOutputInHandOutlivesTheShim(t *testing.T) {
	const text = "a line\nand more"
	for name, c := range map[string]struct {
		kill func(h *inHand)
		want string
	}{
		"before anything":            {func(*inHand) {}, ""},
		"after the copy":             {func(h *inHand) { copy(h.space(), text) }, text},
		"after the note of its size": {func(h *inHand) { copy(h.space(), text+"\x00"); h.took(len(text) + 1) }, text + "\x00"},
		"after it was logged":        {func(h *inHand) { copy(h.space(), text); h.took(len(text)); h.logged() }, ""},
		"after it was dropped": {func(h *inHand) {
			copy(h.space(), text)
			h.took(len(text))
			h.logged()
			h.drop(len(text))
		}, ""},
		"while it was dropped": {func(h *inHand) {
			copy(h.space(), text)
			h.took(len(text))
			h.logged()
			clear(h.space()[:3])
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "stdout.hand")
			h, left, err := openInHand(path)
			if err != nil || len(left) != 0 {
				t.Fatalf("%q in hand of a new one, %v", left, err)
			}
			c.kill(h)
			h.close() // the mapping is shared: what was stored is in the file
			h, left, err = openInHand(path)
			if err != nil || string(left) != c.want {
				t.Errorf("%q in hand, want %q; %v", left, c.want, err)
			}
			h.drop(len(left))
			h.close()
		})
	}
}

// Where there is no space, output is read all the same.
func TestOutputInHandWithoutAFile(t *testing.T) {
	h, left, err := openInHand(filepath.Join(t.TempDir(), "none", "stdout.hand"))
	if !os.IsNotExist(err) || len(left) != 0 || len(h.space()) != inHandSize {
		t.Fatalf("%d bytes left, %d of space, %v", len(left), len(h.space()), err)
	}
	h.took(3)
	h.logged()
	h.drop(3)
	h.close()
}
