package server

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// poller watches descriptors with epoll. Each readiness calls the descriptor's
// handler once, in a goroutine of its own; rearm makes it ready for the next
// call. All methods may be called from anywhere.
type poller struct {
	epfd   int
	wakefd int

	mu       sync.Mutex
	next     uint64
	watches  map[uint64]*watch
	handlers sync.WaitGroup
	stopping bool // no handler is started any more
}

// watch is one watched descriptor. The caller owns the descriptor and closes it
// after remove.
type watch struct {
	key    uint64
	fd     int
	events uint32
	handle func(events uint32)
}

func newPoller() (*poller, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wakefd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epfd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	p := &poller{epfd: epfd, wakefd: wakefd, next: 1, watches: make(map[uint64]*watch)}
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, wakefd, epollEvent(unix.EPOLLIN, 0)); err != nil {
		unix.Close(epfd)
		unix.Close(wakefd)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	return p, nil
}

// epollEvent stores a 64-bit key where the kernel keeps user data.
func epollEvent(events uint32, key uint64) *unix.EpollEvent {
	return &unix.EpollEvent{Events: events, Fd: int32(uint32(key)), Pad: int32(uint32(key >> 32))}
}

func eventKey(e *unix.EpollEvent) uint64 {
	return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
}

// add watches fd for events (EPOLLIN and so on; hang-up and error are always
// included).
func (p *poller) add(fd int, events uint32, handle func(events uint32)) (*watch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &watch{key: p.next, fd: fd, events: events | unix.EPOLLONESHOT, handle: handle}
	p.next++
	if err := unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, fd, epollEvent(w.events, w.key)); err != nil {
		return nil, fmt.Errorf("cannot watch descriptor %d: %w", fd, err)
	}
	p.watches[w.key] = w
	return w, nil
}

// rearm asks for the next call of the handler. It does nothing after remove.
func (p *poller) rearm(w *watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watches[w.key] == w {
		// Can only fail if the descriptor was closed too early, a bug.
		if err := unix.EpollCtl(p.epfd, unix.EPOLL_CTL_MOD, w.fd, epollEvent(w.events, w.key)); err != nil {
			panic(fmt.Sprintf("descriptor %d closed while watched: %v", w.fd, err))
		}
	}
}

// remove ends the watching. A call of the handler may be under way. Nil and
// repeated calls are fine.
func (p *poller) remove(w *watch) {
	if w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watches[w.key] == w {
		delete(p.watches, w.key)
		_ = unix.EpollCtl(p.epfd, unix.EPOLL_CTL_DEL, w.fd, nil)
	}
}

// run calls handlers until stop, then waits for those under way.
func (p *poller) run() error {
	var events [128]unix.EpollEvent
	for {
		n, err := unix.EpollWait(p.epfd, events[:], -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("epoll_wait", err)
		}
		p.mu.Lock()
		if p.stopping {
			p.mu.Unlock()
			p.handlers.Wait()
			unix.Close(p.epfd)
			unix.Close(p.wakefd)
			return nil
		}
		for i := range events[:n] {
			if w := p.watches[eventKey(&events[i])]; w != nil {
				ready := events[i].Events
				p.handlers.Go(func() { w.handle(ready) })
			}
		}
		p.mu.Unlock()
	}
}

// stop makes run return.
func (p *poller) stop() {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	one := [8]byte{1}
	_, _ = unix.Write(p.wakefd, one[:])
}
