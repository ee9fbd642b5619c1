// Package socket makes and reaches unix sockets that root alone may use, at paths
// of any length.
package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen opens the socket at path for root alone. What is there is replaced: who
// calls it knows that nobody serves there. Closing it removes the socket, if it is
// still this one.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot replace socket %s: %w", path, err)
	}
	var l *net.UnixListener
	// The mode a socket has before it gets its name is the mode of its file: at
	// no moment can others connect.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }), err) //nolint:gosec // a descriptor fits
	}}
	err := At(path, func(short string) error {
		made, err := config.Listen(context.Background(), "unix", short)
		if err == nil {
			l = made.(*net.UnixListener) //nolint:forcetypeassert // what "unix" gives
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make socket %s: %w", path, err)
	}
	// The name it was bound by works for a moment only; see Close.
	l.SetUnlinkOnClose(false)
	s := &listener{UnixListener: l, path: path}
	if s.made, err = os.Lstat(path); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make socket %s: %w", path, err), l.Close())
	}
	return s, nil
}

type listener struct {
	*net.UnixListener
	path string
	made os.FileInfo
}

// Close removes the socket, if it is still this one.
func (s *listener) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
		os.Remove(s.path)
	}
	return s.UnixListener.Close()
}

// Dial connects to the socket at path.
func Dial(ctx context.Context, path string) (conn net.Conn, err error) {
	err = At(path, func(short string) (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, "unix", short)
		return err
	})
	return conn, err
}

// At calls f with a name of path that is short enough for a socket address, which
// takes about a hundred bytes. The name holds only until f returns.
func At(path string, f func(short string) error) error {
	if len(path) < 100 {
		return f(path)
	}
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(fd)
	return f("/proc/self/fd/" + strconv.Itoa(fd) + "/" + filepath.Base(path))
}
