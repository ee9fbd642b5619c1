package shim

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// BuildID names the program at path, equal for equal programs only: by what the Go
// linker wrote into it, which is quick to read, or else by all that is in the file.
func BuildID(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot read build id: %w", err)
	}
	defer f.Close()
	if id := goBuildID(f); id != "" {
		return id, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("cannot read build id: %w", err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// goBuildID returns what Go's linker called a program; empty: it did not. It is in
// an ELF note: three words, the first two of them the lengths of what follows, a
// name, which is Go's, and the text.
func goBuildID(program io.ReaderAt) string {
	f, err := elf.NewFile(program)
	if err != nil {
		return ""
	}
	s := f.Section(".note.go.buildid")
	if s == nil {
		return ""
	}
	note, err := s.Data()
	const head = 3 * 4
	name := []byte("Go\x00\x00")
	if err != nil || len(note) < head+len(name) || !bytes.Equal(note[head:head+len(name)], name) {
		return ""
	}
	text := note[head+len(name):]
	size := f.ByteOrder.Uint32(note[4:])
	if uint64(size) > uint64(len(text)) {
		return ""
	}
	return string(text[:size])
}
