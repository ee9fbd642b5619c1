package server

import (
	"bytes"
	"encoding/binary"
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
// The file begins with the number of bytes in hand, 0 while they are being read
// or there are none, logged once they are in the log; the rest is zero but for
// them. Where a shim was killed between the kernel's copy and the note of its
// size, the last byte that is not zero tells.
type inHand struct {
	mem  []byte
	file bool // mem is a mapped file; false: it is at risk, for want of space
}

const (
	inHandHead = 8
	// inHandSize is a compromise: more costs memory for each container, less
	// costs calls when one floods its log.
	inHandSize = 16<<10 - inHandHead
	logged     = ^uint64(0)
)

// openInHand opens or makes the file at path. left is what an earlier shim had
// in hand and did not log.
func openInHand(path string) (h *inHand, left []byte, err error) {
	h = &inHand{mem: make([]byte, inHandHead+inHandSize)}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return h, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	// Space is taken now: a write to a hole of a full file system is a signal.
	if err := unix.Fallocate(fd, 0, 0, int64(len(h.mem))); err != nil {
		return h, nil, fmt.Errorf("cannot take space for output in hand: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, len(h.mem), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return h, nil, fmt.Errorf("cannot map output in hand: %w", err)
	}
	h.mem, h.file = mem, true
	size := binary.NativeEndian.Uint64(mem)
	switch {
	case size == 0:
		size = uint64(len(bytes.TrimRight(h.space(), "\x00")))
	case size > inHandSize:
		h.drop(inHandSize)
		size = 0
	}
	return h, h.space()[:size], nil
}

// space is where to read to; all of it is zero when nothing is in hand.
func (h *inHand) space() []byte { return h.mem[inHandHead:] }

// took notes that n bytes are in hand.
func (h *inHand) took(n int) { atomic.StoreUint64(h.size(), uint64(n)) } //nolint:gosec // a length

// logged notes that what is in hand is in the log.
func (h *inHand) logged() { atomic.StoreUint64(h.size(), logged) }

// drop lets go of the n bytes in hand, which were logged.
func (h *inHand) drop(n int) {
	clear(h.mem[inHandHead : inHandHead+n])
	atomic.StoreUint64(h.size(), 0)
}

// size is the head, which is aligned as the mapping is.
func (h *inHand) size() *uint64 { return (*uint64)(unsafe.Pointer(&h.mem[0])) }

func (h *inHand) close() {
	if h.file {
		_ = unix.Munmap(h.mem)
	}
	h.mem = nil
}
