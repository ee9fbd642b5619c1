package db

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
)

// errTorn says that pages of the file are missing.
var errTorn = errors.New("the file is shorter than its contents")

// The layout of bbolt's two meta pages, as far as it matters here: a page
// header, then magic and version (4 bytes each), page size (4), flags (4), root
// (16), freelist (8), number of pages (8), transaction (8), checksum of all
// before it (8).
const (
	pageHeader   = 16
	metaMagic    = 0xED0CDAED
	metaPageSize = 8
	metaPages    = 40
	metaSum      = 56
	metaEnd      = 64
)

// whole makes sure that all pages in use lie within the file. bbolt maps the
// file and does not check this: reading beyond its end kills the process. It
// judges nothing else; a missing or empty file is whole.
func whole(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var need int64
	pageSize := int64(os.Getpagesize())
	for page := range int64(2) {
		buf := make([]byte, pageHeader+metaEnd)
		if _, err := f.ReadAt(buf, page*pageSize); err != nil {
			continue // bbolt says what it thinks of this
		}
		meta := buf[pageHeader:]
		sum := fnv.New64a()
		sum.Write(meta[:metaSum])
		if binary.NativeEndian.Uint32(meta) != metaMagic || binary.NativeEndian.Uint64(meta[metaSum:]) != sum.Sum64() {
			continue
		}
		pages := int64(binary.NativeEndian.Uint64(meta[metaPages:]))
		need = max(need, pages*int64(binary.NativeEndian.Uint32(meta[metaPageSize:])))
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < need {
		return fmt.Errorf("%w: %d bytes of %d", errTorn, info.Size(), need)
	}
	return nil
}
