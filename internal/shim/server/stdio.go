package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stream is one output of a container: a FIFO or the terminal, read by the shim.
type stream struct {
	name string // "stdout" or "stderr"
	srv  *Server
	log  *logFile // nil: dropped
	to   *audience

	eof chan struct{} // closed when no process has the other end open any more

	mu       sync.Mutex // held while the descriptor is read or closed
	fd       int        // -1: closed
	paused   bool       // for the time of an upgrade: not read
	hand     *inHand
	left     left     // until takeOver
	watch    *watch   // nil: not followed yet
	tail     []byte   // an incomplete line
	tailFile *os.File // holds tail, for the next shim; nil until there is one
	tailPath string
	tailSize int // of what is in the file
}

// openStream makes a stream of fd, which must be non-blocking and belongs to it from
// now on, and looks up what an earlier shim left of it.
func (s *Server) openStream(dir, name string, fd int, log *logFile, to *audience) *stream {
	st := &stream{
		name: name, srv: s, log: log, to: to, fd: fd,
		eof: make(chan struct{}), tailPath: filepath.Join(dir, name+".tail"),
	}
	if err := st.loadTail(); err != nil {
		s.log.Warn("part of a log line lost", "path", st.tailPath, "err", err)
	}
	var err error
	if st.hand, st.left, err = openInHand(filepath.Join(dir, name+".hand")); err != nil {
		s.log.Warn("output in hand is lost if the shim is killed", "err", err)
	}
	return st
}

// followStreams logs what an earlier shim left of the container's streams, and
// reads them from now on to their ends.
func (c *container) followStreams() error {
	// First the one whose write was cut off: it goes on at the end of the log.
	slices.SortStableFunc(c.streams, func(a, b *stream) int {
		switch {
		case a.left.cutOff() == b.left.cutOff():
			return 0
		case a.left.cutOff():
			return -1
		}
		return 1
	})
	for _, st := range c.streams {
		st.takeOver()
	}
	for _, st := range c.streams {
		if err := st.follow(); err != nil {
			return err
		}
	}
	return nil
}

// follow reads the stream whenever there is something to read.
func (st *stream) follow() error {
	st.mu.Lock() // the first call may come at once
	defer st.mu.Unlock()
	w, err := st.srv.poll.add(st.fd, unix.EPOLLIN, func(uint32) { st.drain() })
	st.watch = w
	return err
}

// drain reads what is there. One call is under way at a time.
func (st *stream) drain() {
	for {
		st.mu.Lock()
		if st.fd < 0 || st.paused {
			st.mu.Unlock()
			return
		}
		n, err := unix.Read(st.fd, st.hand.space())
		switch {
		case n > 0:
			st.hand.took(n)
			st.take(st.hand.space()[:n])
			st.mu.Unlock()
		case err == unix.EINTR:
			st.mu.Unlock()
		case err == unix.EAGAIN:
			st.mu.Unlock()
			st.srv.poll.rearm(st.watch)
			return
		default: // the end; of a terminal it is EIO
			st.closeLocked()
			st.mu.Unlock()
			return
		}
	}
}

// pause stops the reading, or goes on with it. Nothing is in hand meanwhile.
func (st *stream) pause(on bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.paused = on
	if !on && st.fd >= 0 && st.watch != nil {
		st.srv.poll.rearm(st.watch)
	}
}

// take logs what is in hand and passes it on to who is attached.
func (st *stream) take(data []byte) {
	if st.log != nil {
		st.tail = st.log.ingest(st.name, st.tail, data, st.hand)
		st.saveTail()
	}
	st.to.write(st.name, data)
	st.hand.drop(len(data))
}

// takeOver logs what an earlier shim had in hand when it was killed, unless it did
// so itself.
func (st *stream) takeOver() {
	st.mu.Lock()
	defer st.mu.Unlock()
	l := st.left
	st.left = left{}
	switch {
	case len(l.data) == 0:
	case st.log == nil: // dropped, like all that came before
		st.hand.drop(len(l.data))
	case l.logged:
		st.tail = l.incomplete(st.tail)
		st.saveTail()
		st.hand.drop(len(l.data))
	default:
		if err := st.log.resume(l.logPlace); err != nil {
			st.srv.log.Warn("lines may be twice in the log", "path", st.log.path, "err", err)
		}
		st.take(l.data)
	}
}

// close ends the reading. An incomplete line is logged as it is.
func (st *stream) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closeLocked()
}

func (st *stream) closeLocked() {
	if st.fd < 0 {
		return
	}
	st.srv.poll.remove(st.watch)
	unix.Close(st.fd)
	st.fd = -1
	st.hand.close()
	st.flushLocked()
	if st.tailFile != nil {
		st.tailFile.Close()
	}
	close(st.eof)
}

// flush logs an incomplete line as it is.
func (st *stream) flush() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.flushLocked()
}

func (st *stream) flushLocked() {
	if st.log != nil && len(st.tail) > 0 {
		st.tail = st.log.finish(st.name, st.tail)
		st.saveTail()
	}
}

// saveTail keeps an incomplete line where the next shim finds it: it is no
// longer in the pipe and not yet in the log. Whole lines cost nothing here.
func (st *stream) saveTail() {
	if len(st.tail) == 0 && st.tailSize == 0 {
		return
	}
	if st.tailFile == nil {
		f, err := os.OpenFile(st.tailPath, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return // run directory full: the line is at risk for now
		}
		st.tailFile = f
	}
	// The old tail is a prefix of the new one unless a line ended in between,
	// so the file is written anew; it is short.
	if _, err := st.tailFile.WriteAt(st.tail, 0); err != nil {
		return
	}
	if len(st.tail) < st.tailSize {
		if err := st.tailFile.Truncate(int64(len(st.tail))); err != nil {
			return
		}
	}
	st.tailSize = len(st.tail)
}

func (st *stream) loadTail() error {
	b, err := os.ReadFile(st.tailPath)
	if err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	if len(b) > maxLine {
		return fmt.Errorf("%d bytes, want at most %d", len(b), maxLine)
	}
	st.tail, st.tailSize = b, len(b)
	return nil
}

// drained waits until the stream has ended, for d at most.
func (st *stream) drained(d time.Duration) bool {
	select {
	case <-st.eof:
		return true
	case <-time.After(d):
		return false
	}
}

// openFIFO opens one end of the FIFO dir/name without waiting for the other.
func openFIFO(dir, name string, flags int) (int, error) {
	path := filepath.Join(dir, name)
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// containerEnd opens the end of a FIFO that the container gets. Output FIFOs are
// opened for reading, too: then the container holds a reader itself, and a shim
// that is killed gives it no SIGPIPE. It blocks when the FIFO is full until the
// next shim reads.
func containerEnd(dir, name string, flags int) (*os.File, error) {
	fd, err := openFIFO(dir, name, flags)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
