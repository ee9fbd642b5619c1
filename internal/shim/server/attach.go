package server

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/shimpb"
)

// attachment is one client that has joined the container's streams.
type attachment struct {
	c *container
	// The client's pipes; nil: not wanted.
	stdin, stdout, stderr *os.File
	in                    *input // nil: no input
	l                     *listener
}

// attach joins the container's streams. files are the client's pipes, as the
// request says; the attachment closes them.
func (c *container) attach(r *shimpb.AttachRequest, files []*os.File) (*attachment, error) {
	a := &attachment{c: c}
	for _, f := range []struct {
		wanted bool
		file   **os.File
	}{{r.Stdin, &a.stdin}, {r.Stdout, &a.stdout}, {r.Stderr, &a.stderr}} {
		if !f.wanted {
			continue
		}
		if len(files) == 0 {
			a.close()
			return nil, errors.New("cannot attach: the streams did not arrive")
		}
		*f.file, files = files[0], files[1:]
	}
	err := a.join(nil)
	if len(files) > 0 {
		closeFiles(files)
		err = errors.Join(err, errors.New("cannot attach: more streams arrived than were announced"))
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// join begins to pass on output and input. pending is input that was read already.
func (a *attachment) join(pending []byte) error {
	st := a.c.state()
	if st.Phase != created && st.Phase != starting && st.Phase != running {
		return a.c.wrongState(st.Phase)
	}
	if err := a.listen(); err != nil {
		return err
	}
	return a.feed(pending)
}

// listen begins to pass on output.
func (a *attachment) listen() error {
	a.l = &listener{stdout: -1, stderr: -1, gone: make(chan struct{})}
	for _, s := range []struct {
		file *os.File
		fd   *int
	}{{a.stdout, &a.l.stdout}, {a.stderr, &a.l.stderr}} {
		if s.file == nil {
			continue
		}
		*s.fd = int(s.file.Fd())
		if err := unix.SetNonblock(*s.fd, true); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
	}
	if !a.c.to.add(a.l) {
		close(a.l.gone) // there is no output to come
	}
	return nil
}

// feed begins to pass on input.
func (a *attachment) feed(pending []byte) error {
	if a.stdin == nil {
		return nil
	}
	// Pollable, so that a read can be ended.
	from, err := pollableCopy(a.stdin, "attach")
	if err != nil {
		return err
	}
	to, err := a.c.openInput()
	if err != nil {
		from.Close()
		return err
	}
	a.in = newInput(from, to, pending)
	return nil
}

// close undoes what was done of join.
func (a *attachment) close() {
	if a.in != nil {
		a.in.stop(func() { a.c.closeInput(a.in.to) })
		if a.c.state().StdinOnce {
			a.c.closeStdin()
		}
	}
	if a.l != nil {
		a.c.to.remove(a.l)
	}
	for _, f := range []*os.File{a.stdin, a.stdout, a.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// run waits until the container has ended, nobody reads any more, or ctx ends.
func (a *attachment) run(ctx context.Context) *shimpb.ExecResponse {
	defer a.close()
	var inputEnded chan struct{} // nil: never
	if a.in != nil {
		inputEnded = a.in.ended
	}
	for {
		select {
		case <-inputEnded:
			if a.c.state().StdinOnce {
				a.c.closeStdin()
			}
			if a.stdout == nil && a.stderr == nil {
				// With nothing to send, the end of the input is the end.
				return &shimpb.ExecResponse{}
			}
			inputEnded = nil
		case <-a.l.gone:
			return &shimpb.ExecResponse{}
		case <-ctx.Done():
			return &shimpb.ExecResponse{}
		}
	}
}

func (a *attachment) over() bool {
	select {
	case <-a.l.gone:
		return true
	default:
	}
	return a.in != nil && a.in.over() && a.stdout == nil && a.stderr == nil
}

func (a *attachment) pause() {
	if a.in != nil {
		a.in.pause()
	}
}

func (a *attachment) resume() {
	if a.in != nil {
		a.in.resume()
	}
}

// openInput gives one attachment a descriptor of its own for the container's
// input: it can be closed while a write waits for a container that does not read.
func (c *container) openInput() (*os.File, error) {
	c.stdinMu.Lock()
	defer c.stdinMu.Unlock()
	if c.stdin == nil {
		return nil, fmt.Errorf("container %q has no standard input to attach to: %w", c.id, shim.ErrState)
	}
	to, err := pollableCopy(c.stdin, "stdin")
	if err != nil {
		return nil, err
	}
	if c.inputs == nil {
		c.inputs = make(map[*os.File]bool)
	}
	c.inputs[to] = true
	return to, nil
}

// closeInput ends what openInput began.
func (c *container) closeInput(to *os.File) {
	c.stdinMu.Lock()
	defer c.stdinMu.Unlock()
	to.Close()
	delete(c.inputs, to)
}

// closeStdin ends the container's input, for all who are attached.
func (c *container) closeStdin() {
	c.stdinMu.Lock()
	defer c.stdinMu.Unlock()
	for to := range c.inputs {
		to.Close()
	}
	c.inputs = nil
	if c.stdin != nil {
		c.stdin.Close()
		c.stdin = nil
	}
}

// pollableCopy duplicates a descriptor so that closing the copy ends reads and
// writes that wait.
func pollableCopy(f *os.File, name string) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var dupErr error
	err = raw.Control(func(old uintptr) {
		if fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); dupErr == nil {
			dupErr = unix.SetNonblock(fd, true)
		}
	})
	if err == nil && dupErr != nil {
		err = os.NewSyscallError("dup", dupErr)
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
