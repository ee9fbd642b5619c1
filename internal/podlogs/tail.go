package podlogs

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// place moves to where the last Tail lines begin.
func (c *cursor) place() error {
	if c.start.Tail == nil {
		return nil
	}
	files, err := list(c.dir)
	if err != nil {
		return err
	}
	wanted := *c.start.Tail
	for i := len(files) - 1; i >= 0; i-- {
		f := files[i]
		if f.attempt < c.start.Attempt || c.start.Only && f.attempt != c.start.Attempt {
			continue
		}
		opened, err := os.Open(f.path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		offset, found, err := backwards(opened, wanted)
		if err != nil {
			opened.Close()
			return err
		}
		c.close()
		c.f, c.offset, c.attempt = opened, offset, f.attempt
		if wanted -= found; wanted <= 0 {
			return nil
		}
	}
	return nil
}

// backwards finds where the last n lines of a file begin, and how many of them
// there are. The parts of a long line are one line.
func backwards(f *os.File, n int) (offset int64, found int, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	end := info.Size()
	if n <= 0 {
		return end, 0, nil
	}
	offset = end
	// rest is the beginning of an entry whose end lies in later blocks.
	var rest []byte
	block := make([]byte, blockBytes)
	count := func(at int64, entry []byte) bool {
		if l, ok := parse(entry); ok && !l.Partial {
			if found == n {
				return false
			}
			found++
		}
		offset = at
		return true
	}
	for at := end; at > 0; {
		size := min(int64(len(block)), at)
		at -= size
		if _, err := f.ReadAt(block[:size], at); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		data := append(bytes.Clone(block[:size]), rest...)
		if at+size == end {
			if i := bytes.LastIndexByte(data, '\n'); i >= 0 {
				data = data[:i+1] // an entry that is being written is left out
			}
		}
		for {
			// data ends with the line feed of its last entry.
			i := bytes.LastIndexByte(data[:max(len(data)-1, 0)], '\n')
			if i < 0 {
				break
			}
			if !count(at+int64(i)+1, bytes.TrimSuffix(data[i+1:], []byte{'\n'})) {
				return offset, found, nil
			}
			data = data[:i+1]
		}
		rest = data
		if len(rest) > maxText {
			return offset, found, nil // not a log of ours
		}
	}
	if len(rest) > 0 {
		count(0, bytes.TrimSuffix(rest, []byte{'\n'}))
	}
	return offset, found, nil
}
