package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/shimpb"
)

// attach joins the container's streams until it ends, nobody reads any more, or
// ctx ends. files are the client's pipes, as the request says; attach closes
// them.
func (c *container) attach(ctx context.Context, r *shimpb.AttachRequest, files []*os.File) error {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	want := 0
	for _, b := range []bool{r.Stdin, r.Stdout, r.Stderr} {
		if b {
			want++
		}
	}
	if len(files) != want {
		return errors.New("cannot attach: the streams did not arrive")
	}
	st := c.state()
	if st.Phase != created && st.Phase != starting && st.Phase != running {
		return c.wrongState(st.Phase)
	}
	rest := files
	inputDone := make(chan struct{})
	if r.Stdin {
		in := rest[0]
		rest = rest[1:]
		stopInput, err := c.feed(in, inputDone)
		if err != nil {
			return err
		}
		defer stopInput()
	}
	l := &listener{stdout: -1, stderr: -1, gone: make(chan struct{})}
	for _, fd := range []struct {
		wanted bool
		fd     *int
	}{{r.Stdout, &l.stdout}, {r.Stderr, &l.stderr}} {
		if !fd.wanted {
			continue
		}
		*fd.fd = int(rest[0].Fd())
		rest = rest[1:]
		if err := unix.SetNonblock(*fd.fd, true); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
	}
	if !c.to.add(l) {
		return nil
	}
	defer c.to.remove(l)
	if !r.Stdout && !r.Stderr {
		// With nothing to send, the end of the input is the end.
		select {
		case <-inputDone:
		case <-l.gone:
		case <-ctx.Done():
		}
		return nil
	}
	select {
	case <-l.gone:
	case <-ctx.Done():
	}
	return nil
}

// feed copies in to the container's input until either ends. stop ends it, too,
// and waits for it.
func (c *container) feed(in *os.File, done chan<- struct{}) (stop func(), err error) {
	// Pollable, so that closing it ends a read.
	from, err := pollableCopy(in, "attach")
	if err != nil {
		return nil, err
	}
	to, err := c.openInput()
	if err != nil {
		from.Close()
		return nil, err
	}
	once := c.state().StdinOnce
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(done)
		defer from.Close()
		// Errors: the client is gone, or the container has closed its input.
		_, _ = io.Copy(plainWriter{to}, plainReader{from})
		if once {
			c.closeStdin()
		}
	}()
	return func() {
		from.Close()
		c.closeInput(to) // ends a write that waits for the container
		<-ended
		if once {
			c.closeStdin()
		}
	}, nil
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

// plainReader and plainWriter keep io.Copy from using splice, which does not
// work with terminals.
type (
	plainReader struct{ io.Reader }
	plainWriter struct{ io.Writer }
)
