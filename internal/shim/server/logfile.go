package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// maxLine is the longest text, in bytes, of one log entry; longer lines are
	// split into entries tagged P, the last one F, as the kubelet expects.
	maxLine = 16 << 10
	// batchSize is how much is written to a log at once.
	batchSize = 64 << 10
	// reopenWait is how long after a failed open the next one is tried.
	reopenWait = time.Second
)

// logFile writes a container's output in the CRI log format. It never fails
// towards the container: what can't be written is dropped and counted, and a
// line in the log says so as soon as it can be written again. Safe for
// concurrent use.
//
// Rotated files are named as the kubelet names them, LOG.YYYYMMDD-HHMMSS, and
// not compressed. When several are made within a second the later ones get the
// next free second, so that names keep the order.
type logFile struct {
	path     string
	maxBytes int64 // 0: never rotated
	maxFiles int

	mu       sync.Mutex
	f        *os.File // nil: closed or can't be opened
	size     int64
	inode    uint64
	batch    []byte // formatted, not yet written
	lines    uint64 // in batch
	retry    time.Time
	lastErr  error  // of the write or open that failed last
	pending  uint64 // dropped since the last line about it
	dropped  uint64 // ever
	lastName string // of the newest rotated file

	// After a resume, until the end of the next ingest: what is in the file beyond
	// size, and the time to write.
	written []byte
	stamp   int64
}

func newLogFile(path string, maxBytes int64, maxFiles int) *logFile {
	return &logFile{path: path, maxBytes: maxBytes, maxFiles: max(maxFiles, 1)}
}

// open opens the file, so that a path that can't work is found out at Create.
func (l *logFile) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openLocked()
}

// takeOver goes on with what the former program of this process kept of the log.
// Without that it opens the file.
func (l *logFile) takeOver(k *kept) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped, l.pending = k.Dropped, k.Pending
	if k.LastErr != "" {
		l.lastErr = errors.New(k.LastErr)
	}
	if k.Log < 0 {
		return l.openLocked()
	}
	f := os.NewFile(uintptr(k.Log), l.path)
	k.Log = -1
	return l.use(f)
}

// keep says what a new program of this process needs of the log.
func (l *logFile) keep(k *kept, p *packing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.Dropped, k.Pending = l.dropped, l.pending
	if l.lastErr != nil {
		k.LastErr = l.lastErr.Error()
	}
	if l.f != nil {
		k.Log = p.must(p.dupOf(l.f))
	}
}

func (l *logFile) openLocked() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	return l.use(f)
}

// use writes to f from now on, which is open for that.
func (l *logFile) use(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size, l.inode, l.written = f, fi.Size(), 0, nil
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		l.inode = st.Ino
	}
	return nil
}

// resume makes the next ingest go on where an earlier shim was cut off, which began
// to write the same at that place.
func (l *logFile) resume(at logPlace) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil || at.inode == 0 || at.inode != l.inode || at.size < 0 || at.size >= l.size {
		return nil
	}
	if n := l.size - at.size; n > maxHalfWritten {
		return fmt.Errorf("cannot read what was half written: %d bytes are more than can be", n)
	}
	f, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("cannot read what was half written: %w", err)
	}
	defer f.Close()
	written := make([]byte, l.size-at.size)
	if _, err := f.ReadAt(written, at.size); err != nil {
		return fmt.Errorf("cannot read what was half written: %w", err)
	}
	l.size, l.written, l.stamp = at.size, written, at.stamp
	return nil
}

// maxHalfWritten bounds what is read of a log because a file says that it was just
// written: each byte in hand may be a line of its own, before it what entries
// begin with.
const maxHalfWritten = inHandSize*64 + maxLine

// skip returns what of b is still to be written after a resume. Where something
// else than b was written, that is taken back.
func (l *logFile) skip(b []byte) []byte {
	n := min(len(b), len(l.written))
	if bytes.Equal(b[:n], l.written[:n]) {
		l.size += int64(n)
		l.written = l.written[n:]
		return b[n:]
	}
	l.takeBack()
	return b
}

// takeBack removes what was written and is not to be.
func (l *logFile) takeBack() {
	if len(l.written) == 0 {
		return
	}
	if err := l.f.Truncate(l.size); err != nil {
		l.lastErr = err
		l.size += int64(len(l.written))
	}
	l.written = nil
}

// reopen closes the file and opens the path anew.
func (l *logFile) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
	if err := l.openLocked(); err != nil {
		return fmt.Errorf("cannot reopen log: %w", err)
	}
	return nil
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
}

func (l *logFile) closeLocked() {
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}
	l.retry = time.Time{}
}

func (l *logFile) droppedLines() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

var batches = sync.Pool{New: func() any { b := make([]byte, 0, batchSize+maxLine+128); return &b }}

// ingest logs the complete lines of data, which continues what is in tail, and
// leaves in tail what is not complete. It notes in hand, which holds data, how far
// it is.
func (l *logFile) ingest(stream string, tail, data []byte, hand *inHand) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Under the mutex: after a kill, what follows this place in the log is of hand.
	at := logPlace{stamp: l.stamp}
	if len(l.written) == 0 {
		at.stamp = time.Now().UnixNano()
	}
	if l.f != nil {
		at.inode, at.size = l.inode, l.size
	}
	hand.begins(at)
	tail = l.ingestLocked(time.Unix(0, at.stamp), stream, tail, data, false)
	if l.f != nil {
		l.takeBack()
	}
	l.written = nil
	hand.logged(len(data), len(tail))
	return tail
}

// finish logs an incomplete line as it is.
func (l *logFile) finish(stream string, tail []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ingestLocked(time.Now(), stream, tail, nil, true)
}

// note adds a line of the shim's own, as if it were of stderr.
func (l *logFile) note(text string) { l.finish("stderr", []byte("berth: "+text)) }

// ingestLocked does what ingest and, with last, finish are for.
func (l *logFile) ingestLocked(now time.Time, stream string, tail, data []byte, last bool) []byte {
	buf := batches.Get().(*[]byte)
	l.batch = (*buf)[:0]
	defer func() {
		*buf = l.batch[:0]
		l.batch = nil
		batches.Put(buf)
	}()
	stamp := now.UTC().AppendFormat(make([]byte, 0, 64), time.RFC3339Nano)
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			tail = append(tail, data...)
			break
		}
		line := data[:i]
		if len(tail) > 0 {
			tail = append(tail, line...)
			line = tail
		}
		for len(line) > maxLine {
			l.entry(stamp, stream, 'P', line[:maxLine])
			line = line[maxLine:]
		}
		l.entry(stamp, stream, 'F', line)
		tail = tail[:0]
		data = data[i+1:]
	}
	split := 0
	for len(tail)-split > maxLine {
		l.entry(stamp, stream, 'P', tail[split:split+maxLine])
		split += maxLine
	}
	tail = tail[:copy(tail, tail[split:])]
	if last && len(tail) > 0 {
		l.entry(stamp, stream, 'F', tail)
		tail = tail[:0]
	}
	l.flush()
	if len(tail) == 0 && cap(tail) > 4<<10 {
		tail = nil
	}
	return tail
}

// entry adds one entry to the batch, and makes room for it first.
func (l *logFile) entry(stamp []byte, stream string, tag byte, line []byte) {
	size := int64(len(stamp) + 1 + len(stream) + 3 + len(line) + 1)
	full := l.size + int64(len(l.batch))
	if l.maxBytes > 0 && full > 0 && full+size > l.maxBytes {
		l.flush()
		if l.size > 0 {
			l.rotate()
		}
	}
	l.batch = append(l.batch, stamp...)
	l.batch = append(l.batch, ' ')
	l.batch = append(l.batch, stream...)
	l.batch = append(l.batch, ' ', tag, ' ')
	l.batch = append(l.batch, line...)
	l.batch = append(l.batch, '\n')
	l.lines++
	if len(l.batch) >= batchSize {
		l.flush()
	}
}

// flush writes the batch or drops it.
func (l *logFile) flush() {
	if l.lines == 0 {
		return
	}
	if err := l.write(); err != nil {
		l.lastErr = err
		l.pending += l.lines
		l.dropped += l.lines
	}
	l.batch, l.lines = l.batch[:0], 0
}

func (l *logFile) write() error {
	if l.f == nil {
		if time.Now().Before(l.retry) {
			return l.lastErr
		}
		if err := l.openLocked(); err != nil {
			l.retry = time.Now().Add(reopenWait)
			return err
		}
	}
	if l.pending > 0 {
		note := fmt.Sprintf("%s stderr F berth: %d log lines lost: %v\n",
			time.Now().UTC().Format(time.RFC3339Nano), l.pending, l.lastErr)
		if err := l.append([]byte(note)); err != nil {
			return err
		}
		l.pending = 0
	}
	return l.append(l.batch)
}

// append writes all of b or nothing: half an entry would spoil the next one.
func (l *logFile) append(b []byte) error {
	b = l.skip(b)
	n, err := l.f.Write(b)
	if err == nil {
		l.size += int64(n)
		return nil
	}
	if n > 0 {
		if terr := l.f.Truncate(l.size); terr != nil {
			l.size += int64(n)
		}
	}
	return err
}

// rotate renames the file and begins a new one. Failing that, the old one grows.
func (l *logFile) rotate() {
	if l.maxFiles == 1 {
		if err := l.f.Truncate(0); err != nil {
			l.lastErr = err
			return
		}
		l.size = 0
		return
	}
	if err := os.Rename(l.path, l.rotatedName(time.Now())); err != nil && !os.IsNotExist(err) {
		l.lastErr = err
		return
	}
	l.closeLocked()
	if err := l.openLocked(); err != nil {
		l.lastErr = err
		l.retry = time.Now().Add(reopenWait)
	}
	l.removeOld()
}

// rotatedName returns a name after all earlier ones. They are remembered, so
// that a flood does not look through the seconds again and again.
func (l *logFile) rotatedName(now time.Time) string {
	const layout = "20060102-150405"
	for {
		name := l.path + "." + now.Format(layout)
		if name > l.lastName {
			if _, err := os.Lstat(name); err != nil {
				l.lastName = name
				return name
			}
		} else if t, err := time.ParseInLocation(layout, strings.TrimPrefix(l.lastName, l.path+"."), now.Location()); err == nil {
			now = t
		}
		now = now.Add(time.Second)
	}
}

// removeOld removes the oldest rotated files beyond maxFiles.
func (l *logFile) removeOld() {
	old, err := filepath.Glob(globEscape(l.path) + ".[0-9]*-[0-9]*")
	if err != nil {
		return
	}
	slices.Sort(old)
	for _, name := range old[:max(0, len(old)-(l.maxFiles-1))] {
		_ = os.Remove(name) // somebody else was faster, or the next rotation tries again
	}
}

// globEscape makes a path match itself only.
func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
