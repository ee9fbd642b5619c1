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
	c.stdinMu.Lock()
	to := c.stdin
	c.stdinMu.Unlock()
	if to == nil {
		return nil, fmt.Errorf("container %q has no standard input to attach to: %w", c.id, shim.ErrState)
	}
	// Pollable, so that closing it ends a read.
	fd, err := unix.FcntlInt(in.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	from := os.NewFile(uintptr(fd), "attach")
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
		if once {
			c.closeStdin() // also ends a write that waits for the container
		}
		<-ended
	}, nil
}

// plainReader and plainWriter keep io.Copy from using splice, which does not
// work with terminals.
type (
	plainReader struct{ io.Reader }
	plainWriter struct{ io.Writer }
)
