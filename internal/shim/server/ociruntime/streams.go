package ociruntime

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/containerd/go-runc"

	"github.com/berth-run/berth/internal/shim"
)

// files are handed to the program, which hands them to the process it starts.
type files struct{ in, out, err *os.File }

var _ runc.IO = files{}

func (f files) Set(cmd *exec.Cmd)     { cmd.Stdin, cmd.Stdout, cmd.Stderr = f.in, f.out, f.err }
func (f files) Stdin() io.WriteCloser { return nil }
func (f files) Stdout() io.ReadCloser { return nil }
func (f files) Stderr() io.ReadCloser { return nil }
func (f files) Close() error          { return nil }

// consoleSocket is where a program sends the terminal of a process it started.
type consoleSocket struct{ *net.UnixListener }

var _ runc.ConsoleSocket = consoleSocket{}

func listenConsole(dir string) (consoleSocket, error) {
	for {
		path := filepath.Join(dir, fmt.Sprintf("tty%08x", rand.Uint32()))
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if _, taken := os.Lstat(path); err != nil && taken == nil {
			continue
		}
		if err != nil {
			return consoleSocket{}, fmt.Errorf("cannot make a socket for the terminal: %w", err)
		}
		return consoleSocket{l}, nil
	}
}

func (s consoleSocket) Path() string { return s.Addr().String() }

// terminalWait is how long a terminal may take that was sent already.
const terminalWait = 10 * time.Second

// terminal takes what the program has sent by its end.
func (s consoleSocket) terminal() (*os.File, error) {
	until := time.Now().Add(terminalWait)
	if err := s.SetDeadline(until); err != nil {
		return nil, err
	}
	conn, err := s.AcceptUnix()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errors.New("it sent no terminal")
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	f, err := conn.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.SetReadDeadline(until); err != nil {
		return nil, err
	}
	return shim.ReceiveTerminal(f)
}
