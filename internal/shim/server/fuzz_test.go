package server

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever is in the file of output in hand: no panic, no more than fits is
// found, and what is found can be gone on from.
func FuzzInHand(f *testing.F) {
	for _, state := range []uint64{0, 5, inHandSize, inHandSize + 1, isLogged | 5<<32 | 2, isLogged | 5<<32 | 1<<31, isSaved, 1<<64 - 1, isLogged | 1<<62 - 1} {
		f.Add(handOf(state, 1, 2, 3, []byte("hello\n")), []byte("kept"))
	}
	f.Add([]byte{}, []byte{})
	f.Add(bytes.Repeat([]byte{0xff}, inHandHead+inHandSize+100), bytes.Repeat([]byte("k"), maxLine))
	f.Fuzz(func(t *testing.T, file, kept []byte) {
		path := filepath.Join(t.TempDir(), "stdout.hand")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		h, l, err := openInHand(path)
		if err != nil {
			t.Fatal(err)
		}
		defer h.close()
		if len(l.data) > inHandSize || l.tail > maxLine || l.tail < 0 {
			t.Fatalf("%d bytes are in hand, %d of a line", len(l.data), l.tail)
		}
		kept = kept[:min(len(kept), maxLine)]
		if line := l.incomplete(kept); len(line) > len(kept)+len(l.data) {
			t.Fatalf("a line of %d bytes is made of %d and %d", len(line), len(kept), len(l.data))
		}
		if len(l.data) > 0 {
			h.drop(len(l.data))
		}
		// Nothing is in hand now: what comes next is what was read.
		n := copy(h.space(), "next")
		h.took(n)
		if got := h.found(); string(got.data) != "next" || got.logged {
			t.Fatalf("afterwards %q is in hand", got.data)
		}
	})
}

// Whatever is in the files that a shim left of a stream, and in its log: the next
// one takes over without a panic, leaves the lines before that place alone, and
// what comes then is logged.
func FuzzLeftStream(f *testing.F) {
	const before = "2026-01-02T03:04:05Z stdout F before\n"
	f.Add([]byte("begun"), []byte("2026-01-02T03:04:05Z stdout F a\n"), uint64(2), uint64(len(before)), uint64(1), []byte("a\n"))
	f.Add([]byte{}, []byte("2026-01-02T03:04:05Z std"), uint64(2), uint64(len(before)), uint64(1), []byte("a\n"))
	f.Add(bytes.Repeat([]byte("x"), maxLine+1), []byte{}, uint64(isLogged|5<<32|2), uint64(0), uint64(0), []byte("hello"))
	f.Add([]byte("a\nb\n"), []byte("torn"), uint64(3), uint64(1<<63), uint64(1<<63), []byte("xyz"))
	f.Add([]byte("k"), []byte(""), uint64(isLogged|1<<32|maxLine), uint64(1<<64-1), uint64(7), []byte("z"))
	f.Fuzz(func(t *testing.T, tail, written []byte, state, place, stamp uint64, data []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "log")
		if err := os.WriteFile(path, append([]byte(before), written...), 0o600); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string][]byte{"stdout.tail": tail, "stdout.hand": handOf(state, place, stamp, st.Ino, data)} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		log := newLogFile(path, 0, 0)
		if err := log.open(); err != nil {
			t.Fatal(err)
		}
		defer log.close()
		srv := &Server{log: slog.New(slog.DiscardHandler)}
		s := srv.openStream(dir, "stdout", -1, log, &audience{})
		defer s.hand.close()
		defer func() {
			if s.tailFile != nil {
				s.tailFile.Close()
			}
		}()
		s.takeOver()
		n := copy(s.hand.space(), "\nafter\n")
		s.hand.took(n)
		s.take(s.hand.space()[:n])
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if place >= uint64(len(before)) && !bytes.HasPrefix(got, []byte(before)) {
			t.Fatalf("what was logged before is gone: %q", got)
		}
		if !bytes.HasSuffix(got, []byte(" stdout F after\n")) {
			t.Fatalf("what came afterwards is not logged: %q", got)
		}
	})
}

// handOf is a file of output in hand.
func handOf(state, place, stamp, inode uint64, data []byte) (b []byte) {
	for _, w := range []uint64{state, place, stamp, inode} {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return append(b, data...)
}
