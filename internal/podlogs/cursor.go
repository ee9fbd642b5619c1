package podlogs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"
)

const (
	blockBytes = 64 << 10
	// turnBlocks is how much is read of one container before others have their
	// turn.
	turnBlocks = 8
)

// Start says where to begin. The zero value is the beginning of what is there.
type Start struct {
	Attempt int       // earlier attempts are left out
	Only    bool      // later attempts too
	Tail    *int      // begin at most this many lines before the end of what is there
	Since   time.Time // lines before are left out
}

// cursor is a place in the logs of one container.
type cursor struct {
	dir   string
	start Start
	emit  func(attempt int, l Line) error

	f       *os.File // nil: nothing was there yet
	attempt int
	offset  int64
	held    []byte // read, and not a whole entry yet
	join    joiner
	placed  bool // Tail was heeded
	// follows is the file after f, as last seen; nil: there was none.
	follows os.FileInfo
	block   []byte
}

func (c *cursor) close() {
	if c.f != nil {
		c.f.Close()
		c.f = nil
	}
}

// turn reads on for a while. more says that there is more to read at once.
func (c *cursor) turn() (more bool, err error) {
	if !c.placed {
		c.placed = true
		if err := c.place(); err != nil {
			return false, err
		}
	}
	if err := c.lookAhead(); err != nil {
		return false, err
	}
	for range turnBlocks {
		n, err := c.read()
		if err != nil {
			return false, err
		}
		if n > 0 {
			continue
		}
		switched, err := c.next()
		if err != nil || !switched {
			return false, err
		}
	}
	return true, nil
}

// read takes one block of the file.
func (c *cursor) read() (int, error) {
	if c.f == nil {
		return 0, nil
	}
	if c.block == nil {
		c.block = make([]byte, blockBytes)
	}
	n, err := c.f.ReadAt(c.block, c.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if n == 0 {
		c.block = nil // a container at rest costs no block
		if info, err := c.f.Stat(); err == nil && info.Size() < c.offset {
			c.offset, c.held = 0, nil // truncated: it begins anew
			return c.read()
		}
		return 0, nil
	}
	c.offset += int64(n)
	return n, c.feed(c.block[:n])
}

// feed splits what was read into entries.
func (c *cursor) feed(data []byte) error {
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			if len(c.held)+len(data) > maxText {
				c.held = c.held[:0] // no entry of ours is that long
			}
			c.held = append(c.held, data...)
			return nil
		}
		entry := data[:i]
		data = data[i+1:]
		if len(c.held) > 0 {
			entry = append(c.held, entry...)
			c.held = nil
		}
		l, ok := parse(entry)
		if !ok || l.Time.Before(c.start.Since) {
			continue
		}
		if l, ok = c.join.add(l); ok {
			if err := c.emit(c.attempt, l); err != nil {
				return err
			}
		}
	}
}

// next goes on to the file written after this one, if there is one.
func (c *cursor) next() (bool, error) {
	for {
		files, err := list(c.dir)
		if err != nil {
			return false, err
		}
		f, lost, ok := c.after(files)
		if !ok {
			return false, nil
		}
		// What was written before it was put aside must be read first.
		if n, err := c.read(); err != nil || n > 0 {
			return true, err
		}
		opened, err := os.Open(f.path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		info, err := opened.Stat()
		if err != nil || !os.SameFile(info, f.info) {
			opened.Close() // it was rotated meanwhile
			continue
		}
		c.close()
		c.f, c.offset, c.held, c.follows = opened, 0, nil, nil
		if lost && f.attempt == c.attempt {
			if err := c.emit(c.attempt, Line{Lost: true}); err != nil {
				return false, err
			}
		}
		if f.attempt != c.attempt {
			c.join = joiner{}
		}
		c.attempt = f.attempt
		return true, nil
	}
}

// lookAhead notes which file follows while ours is still there to tell by.
func (c *cursor) lookAhead() error {
	if c.f == nil || c.follows != nil {
		return nil
	}
	files, err := list(c.dir)
	if err != nil {
		return err
	}
	if f, lost, ok := c.after(files); ok && !lost {
		c.follows = f.info
	}
	return nil
}

// after chooses the file that follows. lost says that others may have been
// between.
func (c *cursor) after(files []file) (next file, lost, ok bool) {
	from := 0
	if c.f != nil {
		// A file of the same attempt that is still there when ours is not is
		// newer: the oldest are removed first.
		mine, err := c.f.Stat()
		lost = true
		for i, f := range files {
			if err == nil && os.SameFile(mine, f.info) {
				from, lost = i+1, false
			}
		}
	}
	for _, f := range files[from:] {
		switch {
		case f.attempt < c.start.Attempt, c.f != nil && f.attempt < c.attempt:
		case c.start.Only && f.attempt != c.start.Attempt:
		case c.follows != nil:
			return f, lost && !os.SameFile(c.follows, f.info), true
		default:
			return f, lost, true
		}
	}
	return file{}, false, false
}
