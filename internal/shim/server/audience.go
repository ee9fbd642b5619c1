package server

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// attachPatience is how long a container's output waits for an attached reader
// whose pipe is full. After that the reader loses output, without further
// waiting, until it has read something.
const attachPatience = 100 * time.Millisecond

// audience is who is attached to a container's output. Safe for concurrent use.
type audience struct {
	mu        sync.Mutex
	listeners []*listener
	closed    bool
}

// listener is one attached client: the write ends of its pipes, non-blocking.
type listener struct {
	stdout, stderr int           // -1: not wanted
	gone           chan struct{} // closed when nothing more is sent
	lagging        bool          // lost output and has not caught up
}

// add makes l part of the audience. It returns false when there is no output
// to come.
func (a *audience) add(l *listener) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.listeners = append(a.listeners, l)
	return true
}

// remove takes l out. Afterwards its descriptors are not used any more.
func (a *audience) remove(l *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.listeners, l); i >= 0 {
		a.listeners = slices.Delete(a.listeners, i, i+1)
	}
}

// close tells everybody that no more output comes.
func (a *audience) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	for _, l := range a.listeners {
		close(l.gone)
	}
	a.listeners = nil
}

func (a *audience) write(stream string, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := len(a.listeners) - 1; i >= 0; i-- {
		l := a.listeners[i]
		fd := l.stdout
		if stream == "stderr" {
			fd = l.stderr
		}
		if fd >= 0 && !l.send(fd, data) {
			close(l.gone)
			a.listeners = slices.Delete(a.listeners, i, i+1)
		}
	}
}

// send writes data, with little patience. It returns false when the reader has
// closed its end.
func (l *listener) send(fd int, data []byte) bool {
	end := time.Now().Add(attachPatience)
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		switch {
		case err == nil:
			data = data[n:]
			l.lagging = false
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			wait := time.Until(end)
			if l.lagging || wait <= 0 {
				l.lagging = true
				return true
			}
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(wait.Milliseconds())+1)
		default:
			return false
		}
	}
	return true
}
