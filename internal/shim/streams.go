package shim

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// drainIdle is how long to wait for more output after the process has ended
	// and nothing came: a process left behind may hold the pipe open for ever.
	drainIdle = time.Second
	// drainMax bounds that wait when such a process goes on writing.
	drainMax = 10 * time.Second
	// attachPipe is the size, in bytes, asked for the pipes of an attach.
	attachPipe = 1 << 20
)

// streams are the local ends of what an exec or attach reads and writes. One
// goroutine uses it.
type streams struct {
	sent   []*os.File // what goes to the shim, in the order of the request's fields
	temp   []*os.File // those of sent that we opened: closed once sent
	ours   []*os.File // our ends, closed at the end
	stdin  *os.File   // our end of the standard input
	copies []*copying // outputs
	begin  []func()   // what starts once all is sent
	begun  bool
}

// addPipes makes a pipe for each stream that is not nil. With direct, files are
// handed over as they are.
func (s *streams) addPipes(stdin io.Reader, stdout, stderr io.Writer, direct bool) error {
	if f, ok := stdin.(*os.File); ok && direct {
		s.sent = append(s.sent, f)
	} else if stdin != nil {
		theirs, ours, err := pipe(false)
		if err != nil {
			return err
		}
		s.sent, s.temp, s.ours = append(s.sent, theirs), append(s.temp, theirs), append(s.ours, ours)
		s.stdin = ours
		s.begin = append(s.begin, func() {
			// Ends when stdin ends or the process closes its end. Not waited
			// for, because a Read of stdin can't be interrupted.
			go func() {
				_, _ = io.Copy(ours, stdin)
				ours.Close()
			}()
		})
	}
	for _, w := range []io.Writer{stdout, stderr} {
		if w == nil {
			continue
		}
		if f, ok := w.(*os.File); ok && direct {
			s.sent = append(s.sent, f)
			continue
		}
		theirs, ours, err := pipe(true)
		if err != nil {
			return err
		}
		if !direct {
			// Refused beyond the user's limit; the usual size will do.
			_, _ = unix.FcntlInt(theirs.Fd(), unix.F_SETPIPE_SZ, attachPipe)
		}
		s.sent, s.temp = append(s.sent, theirs), append(s.temp, theirs)
		cp := &copying{from: ours, to: w, done: make(chan struct{})}
		s.copies = append(s.copies, cp)
		s.begin = append(s.begin, func() { go cp.run() })
	}
	return nil
}

// addTerminal makes a console socket. When the terminal arrives, serve is
// called; what it returns is called when the terminal's output has ended.
func (s *streams) addTerminal(out io.Writer, serve func(*os.File) (stop func())) error {
	ours, theirs, err := SocketPair()
	if err != nil {
		return err
	}
	s.sent, s.temp, s.ours = append(s.sent, theirs), append(s.temp, theirs), append(s.ours, ours)
	if out == nil {
		out = io.Discard
	}
	cp := &copying{to: out, done: make(chan struct{})}
	s.copies = append(s.copies, cp)
	s.begin = append(s.begin, func() {
		go func() {
			tty, err := ReceiveTerminal(ours)
			if err != nil || !cp.setFrom(tty) {
				close(cp.done) // the exec failed, and its answer says why
				return
			}
			stop := serve(tty)
			cp.run()
			stop()
		}()
	})
	return nil
}

// send hands the descriptors to the shim, closes our copies of them, and starts
// to copy.
func (s *streams) send(ctx context.Context, c *Client, token uint64) error {
	if len(s.sent) > 0 {
		// A shim must be there to receive them.
		if _, err := c.connection(ctx); err != nil {
			return err
		}
		if err := sendFDs(c.cfg.path(FDsName), token, s.sent); err != nil {
			return fmt.Errorf("%w: cannot send descriptors: %w", ErrGone, err)
		}
	}
	for _, f := range s.temp {
		f.Close()
	}
	s.temp, s.begun = nil, true
	for _, f := range s.begin {
		f()
	}
	return nil
}

// drain waits until all output is copied, or nothing more comes.
func (s *streams) drain() {
	if s.stdin != nil {
		s.stdin.Close()
	}
	giveUp := time.After(drainMax)
	for _, cp := range s.copies {
		for waiting := true; waiting; {
			before := cp.reads.Load()
			select {
			case <-cp.done:
				waiting = false
			case <-time.After(drainIdle):
				// Stuck in a slow writer of the caller is no reason to stop.
				waiting = cp.writing.Load() || cp.reads.Load() != before
			case <-giveUp:
				return
			}
		}
	}
}

// err is the first error of a writer whose output has ended.
func (s *streams) err() error {
	for _, cp := range s.copies {
		select {
		case <-cp.done:
			if cp.err != nil {
				return fmt.Errorf("cannot write output: %w", cp.err)
			}
		default:
		}
	}
	return nil
}

// closeAll closes what is open and waits for the output copies.
func (s *streams) closeAll() {
	for _, f := range append(s.temp, s.ours...) {
		f.Close()
	}
	for _, cp := range s.copies {
		cp.close()
		if s.begun {
			<-cp.done
		}
	}
}

// copying moves one output from a pipe or terminal to a writer.
type copying struct {
	to   io.Writer
	done chan struct{}
	err  error // of the writer; valid once done is closed

	reads   atomic.Uint64
	writing atomic.Bool

	mu     sync.Mutex
	from   *os.File // nil: not there yet
	closed bool
}

func (cp *copying) setFrom(f *os.File) bool {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.closed {
		f.Close()
		return false
	}
	cp.from = f
	return true
}

// close makes run end.
func (cp *copying) close() {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.closed = true
	if cp.from != nil {
		cp.from.Close()
	}
}

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func (cp *copying) run() {
	defer close(cp.done)
	defer cp.close()
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := cp.from.Read(*buf)
		cp.reads.Add(1)
		if n > 0 {
			cp.writing.Store(true)
			_, cp.err = cp.to.Write((*buf)[:n])
			cp.writing.Store(false)
		}
		// Closing our end after a failed write gives the process SIGPIPE, as
		// in a shell. A terminal ends with EIO.
		if err != nil || cp.err != nil {
			return
		}
	}
}

// pipe makes a pipe whose far end blocks, as processes expect, and whose near
// end can be closed while in use. reading says which one is ours.
func pipe(reading bool) (theirs, ours *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	near, far := fds[1], fds[0]
	if reading {
		near, far = far, near
	}
	if err := unix.SetNonblock(near, true); err != nil {
		unix.Close(near)
		unix.Close(far)
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(far), "pipe"), os.NewFile(uintptr(near), "pipe"), nil
}
