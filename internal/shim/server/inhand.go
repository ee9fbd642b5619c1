package server

import (
	"bytes"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inHand is where a stream's output is between the FIFO and the log: memory that
// is a file, so that a shim which is killed with output in hand leaves it to the
// next one. The kernel puts what it takes out of the FIFO right into it.
//
// The file begins with three words, each written at once; the rest is zero but for
// what is in hand:
//
//	state  0: being read, or nothing; the last byte that is not zero tells
//	       n: so many bytes are in hand
//	       isLogged, n, t: n bytes are in the log, but for t that begin a line
//	       isSaved: that beginning is kept elsewhere, too
//	place  how long the log was before anything of this was written to it
//	stamp  the time that is written with it, in Unix nanoseconds
//	inode  of that log; 0: nothing was written
//
// So the next shim can go on where the last one was cut off in its write, and
// writes nothing twice. It can't where the log was rotated in between: some lines
// are twice in it, then.
type inHand struct {
	mem  []byte
	file bool // mem is a mapped file; false: it is at risk, for want of space
}

const (
	inHandState = iota
	inHandPlace
	inHandStamp
	inHandInode
	inHandHead = 4 * 8
	// inHandSize is a compromise: more costs memory for each container, less
	// costs calls when one floods its log. It is at most maxLine.
	inHandSize = 16<<10 - inHandHead

	isLogged = 1 << 63
	isSaved  = isLogged | 1<<62
)

// left is what a shim that was killed had in hand.
type left struct {
	data     []byte
	logged   bool
	tail     int // of the logged: how much of it is the beginning of a line
	logPlace     // of what is not logged: where it would go
}

// logPlace is a place in a log file, and the time of what is written there, in
// Unix nanoseconds.
type logPlace struct {
	inode uint64 // 0: not known
	size  int64
	stamp int64
}

// openInHand opens or makes the file at path, and says what an earlier shim left.
func openInHand(path string) (h *inHand, l left, err error) {
	h = &inHand{mem: make([]byte, inHandHead+inHandSize)}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return h, l, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	// Space is taken now: a write to a hole of a full file system is a signal.
	if err := unix.Fallocate(fd, 0, 0, int64(len(h.mem))); err != nil {
		return h, l, fmt.Errorf("cannot take space for output in hand: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, len(h.mem), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return h, l, fmt.Errorf("cannot map output in hand: %w", err)
	}
	h.mem, h.file = mem, true
	return h, h.found(), nil
}

// found reads what is left, and makes room for the new if it is nothing.
func (h *inHand) found() left {
	state := h.word(inHandState)
	n, tail := *state, uint64(0)
	switch {
	case n == 0:
		n = uint64(len(bytes.TrimRight(h.space(), "\x00")))
	case n&isSaved == isLogged:
		n, tail = n>>32&^(1<<31), n&(1<<32-1)
	}
	if n == 0 || n > inHandSize || tail > maxLine { // saved, or no file of ours
		h.drop(inHandSize)
		return left{}
	}
	return left{
		data: h.space()[:n], logged: *state&isLogged != 0, tail: int(tail), //nolint:gosec // checked
		logPlace: logPlace{
			inode: *h.word(inHandInode),
			size:  int64(*h.word(inHandPlace)), //nolint:gosec // a length
			stamp: int64(*h.word(inHandStamp)), //nolint:gosec // a time
		},
	}
}

// cutOff says that some of it may be at the end of the log.
func (l left) cutOff() bool { return len(l.data) > 0 && !l.logged && l.inode != 0 }

// incomplete is the line that begins in what was logged, or before: kept is what
// is kept elsewhere, as it was before or after the logging.
func (l left) incomplete(kept []byte) []byte {
	if l.tail <= len(l.data) {
		return append([]byte(nil), l.data[len(l.data)-l.tail:]...)
	}
	// No line ended in it: it continues the one that is kept.
	before := min(l.tail-len(l.data), len(kept))
	return append(append([]byte(nil), kept[:before]...), l.data...)
}

// space is where to read to; all of it is zero when nothing is in hand.
func (h *inHand) space() []byte { return h.mem[inHandHead:] }

// took notes that n bytes are in hand.
func (h *inHand) took(n int) { atomic.StoreUint64(h.word(inHandState), uint64(n)) } //nolint:gosec // a length

// begins notes that what is in hand is about to be written to the log.
func (h *inHand) begins(at logPlace) {
	atomic.StoreUint64(h.word(inHandPlace), uint64(at.size))  //nolint:gosec // a length
	atomic.StoreUint64(h.word(inHandStamp), uint64(at.stamp)) //nolint:gosec // a time
	atomic.StoreUint64(h.word(inHandInode), at.inode)
}

// logged notes that n bytes in hand are in the log, but for the last line, of
// which tail bytes were read so far.
func (h *inHand) logged(n, tail int) {
	atomic.StoreUint64(h.word(inHandState), isLogged|uint64(n)<<32|uint64(tail)) //nolint:gosec // lengths
}

// drop lets go of the n bytes in hand, which were logged.
func (h *inHand) drop(n int) {
	atomic.StoreUint64(h.word(inHandState), isSaved)
	clear(h.mem[inHandHead : inHandHead+n])
	atomic.StoreUint64(h.word(inHandInode), 0)
	atomic.StoreUint64(h.word(inHandState), 0)
}

// word is one of the head, which is aligned as the mapping is.
func (h *inHand) word(i int) *uint64 { return (*uint64)(unsafe.Pointer(&h.mem[8*i])) }

func (h *inHand) close() {
	if h.file {
		_ = unix.Munmap(h.mem)
	}
	h.mem = nil
}
