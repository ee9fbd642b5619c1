package server

import (
	"errors"
	"os"
	"sync"
	"time"
)

// inputSize is how much input is read at once, in bytes.
const inputSize = 32 << 10

// input copies what an attached client writes to the container's input. It can be
// interrupted anywhere, and then knows what it has read and not written.
type input struct {
	from, to *os.File      // both can be given deadlines
	ended    chan struct{} // closed when there is no more to copy

	mu      sync.Mutex     // held by who pauses, resumes or stops
	stopped bool           // for good
	copying sync.WaitGroup // the copy that is under way, if any

	// Touched by the copy while one is under way.
	buf     []byte
	pending []byte // read, not written
}

func newInput(from, to *os.File, pending []byte) *input {
	in := &input{from: from, to: to, ended: make(chan struct{}), buf: make([]byte, inputSize), pending: pending}
	in.copying.Go(in.copy)
	return in
}

// copy goes on until an end is closed, or the deadline comes that pause sets.
func (in *input) copy() {
	for {
		for len(in.pending) > 0 {
			n, err := in.to.Write(in.pending)
			in.pending = in.pending[n:]
			if err != nil {
				in.halt(err)
				return
			}
		}
		n, err := in.from.Read(in.buf)
		in.pending = in.buf[:n]
		if err != nil && n == 0 {
			in.halt(err)
			return
		}
	}
}

// halt looks at why the copy can't go on: mostly because the client is gone, or the
// container has closed its input.
func (in *input) halt(err error) {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		close(in.ended)
	}
}

// over says that there is no more to copy.
func (in *input) over() bool {
	select {
	case <-in.ended:
		return true
	default:
		return false
	}
}

// pause interrupts the copy, and returns once that has stopped.
func (in *input) pause() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.until(time.Unix(1, 0))
	in.copying.Wait()
}

// resume goes on after pause.
func (in *input) resume() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stopped || in.over() {
		return
	}
	in.until(time.Time{})
	in.copying.Go(in.copy)
}

// until sets when the copy is interrupted. That fails where a file is closed, which
// ends the copy as well.
func (in *input) until(t time.Time) {
	_ = in.from.SetReadDeadline(t)
	_ = in.to.SetWriteDeadline(t)
}

// stop ends the copy for good. closeTo closes the container's end.
func (in *input) stop(closeTo func()) {
	in.from.Close()
	closeTo()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stopped = true
	in.copying.Wait()
}
