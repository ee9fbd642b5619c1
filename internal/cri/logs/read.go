package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options say what to read. The zero value means everything there is now.
type Options struct {
	Tail  *int64    // only the last so many lines, of what is there at the start; nil: all
	Since time.Time // only what was written then or later
	// Follow goes on with what is written, until Ended is closed and everything
	// written before that is read. A nil Ended is never closed.
	Follow bool
	Ended  <-chan struct{}
}

// reader reads a log's files one after the other.
type reader struct {
	path   string
	opts   Options
	emit   func(Entry) error
	file   *os.File // the one being read; nil: none yet
	buf    *bufio.Reader
	partly []byte // the start of a line whose end is not there yet
}

// Read calls emit for each entry of the log at path, in order. A log that does
// not exist has no entries; followed, it may come to exist. Lines that are not
// in the format are left out. An error of emit ends the reading and is returned.
func Read(ctx context.Context, path string, o Options, emit func(Entry) error) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	r := &reader{path: path, opts: o, emit: emit}
	defer r.close()
	var changes *changeWatch
	if o.Follow { // before reading, so that no change is missed
		if changes, err = watch(path); err != nil {
			return fmt.Errorf("cannot watch log: %w", err)
		}
		defer changes.close()
	}
	if err := r.begin(); err != nil {
		return fmt.Errorf("cannot read log: %w", err)
	}
	for {
		ended := isClosed(o.Ended) // before reading: what is there now is all
		if err := r.drain(ctx); err != nil {
			return err
		}
		if !o.Follow || ended {
			return nil
		}
		if err := changes.wait(ctx, o.Ended); err != nil {
			return err
		}
	}
}

// begin opens the file to start with.
func (r *reader) begin() error {
	files, err := filesOf(r.path)
	if err != nil || len(files) == 0 {
		return err
	}
	var offset int64
	first := 0
	if r.opts.Tail != nil {
		if first, offset, err = tailOf(files, max(*r.opts.Tail, 0)); err != nil {
			return err
		}
	}
	for _, name := range files[first:] {
		err := r.open(name, offset)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		offset = 0 // that one has just been removed
	}
	return nil
}

func (r *reader) open(name string, offset int64) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		f.Close()
		return err
	}
	r.take(f)
	return nil
}

// take reads f from now on.
func (r *reader) take(f *os.File) {
	r.close()
	r.file, r.buf, r.partly = f, bufio.NewReaderSize(f, blockSize), nil
}

func (r *reader) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// drain reads all there is, from file to file.
func (r *reader) drain(ctx context.Context) error {
	for {
		if r.file != nil {
			if err := r.lines(ctx); err != nil {
				return err
			}
		}
		// If a newer file exists, nothing more comes to this one: but it may have
		// got its last lines after they were looked for.
		next, err := r.next()
		if err != nil {
			return fmt.Errorf("cannot read log: %w", err)
		}
		if next == "" {
			return nil
		}
		if r.file != nil {
			if err := r.lines(ctx); err != nil {
				return err
			}
		}
		if err := r.advance(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot read log: %w", err)
		}
	}
}

// advance goes on to the file after the one being read, which was last seen as
// name. It may have been rotated since, and another have taken its name: then it
// does nothing, and is to be called anew.
func (r *reader) advance(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	after, err := r.next()
	if err == nil && after != "" {
		var fi, mine fs.FileInfo
		if fi, err = os.Stat(after); err == nil {
			if mine, err = f.Stat(); err == nil && os.SameFile(mine, fi) {
				r.take(f)
				return nil
			}
		}
	}
	f.Close()
	return err
}

// next names the file after the one being read; "" if it is the last. If the
// one being read was removed, it is the oldest there is.
func (r *reader) next() (string, error) {
	if r.file != nil {
		if current, err := os.Stat(r.path); err == nil && r.isOpen(current) {
			return "", nil // the usual case
		}
	}
	files, err := filesOf(r.path)
	if err != nil || len(files) == 0 {
		return "", err
	}
	if r.file == nil {
		return files[0], nil
	}
	at := slices.IndexFunc(files, func(name string) bool {
		fi, err := os.Stat(name)
		return err == nil && r.isOpen(fi)
	})
	if at == len(files)-1 {
		return "", nil
	}
	return files[at+1], nil
}

func (r *reader) isOpen(fi fs.FileInfo) bool {
	mine, err := r.file.Stat()
	return err == nil && os.SameFile(mine, fi)
}

// lines reads the whole lines that the open file has left.
func (r *reader) lines(ctx context.Context) error {
	for {
		line, err := r.buf.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) || errors.Is(err, io.EOF) {
			r.partly = append(r.partly, line...)
			if errors.Is(err, io.EOF) {
				return ctx.Err()
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot read log: %w", err)
		}
		if len(r.partly) > 0 {
			r.partly = append(r.partly, line...)
			line = r.partly
		}
		e, err := Parse(line)
		r.partly = r.partly[:0]
		if err != nil || e.Time.Before(r.opts.Since) {
			continue
		}
		if err := r.emit(e); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// changeWatch says when something happens in a log's folder.
type changeWatch struct{ w *fsnotify.Watcher }

func watch(path string) (*changeWatch, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(filepath.Dir(path)); err != nil {
		w.Close()
		return nil, err
	}
	return &changeWatch{w}, nil
}

func (c *changeWatch) close() { _ = c.w.Close() }

// wait returns when there may be something new, or when ended is closed.
func (c *changeWatch) wait(ctx context.Context, ended <-chan struct{}) error {
	select {
	case <-c.w.Events:
	case err := <-c.w.Errors: // events were lost: look again
		if !errors.Is(err, fsnotify.ErrEventOverflow) {
			return fmt.Errorf("cannot watch log: %w", err)
		}
	case <-ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
