package shim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/socket"
)

// maxFDs is how many descriptors one datagram may carry.
const maxFDs = 4

// sendFDs hands files to the shim under token. The shim owns its copies; the
// caller still closes its own.
func sendFDs(path string, token uint64, files []*os.File) error {
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(sock)
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd()) // makes it blocking, as the process that gets it expects
	}
	var msg [8]byte
	binary.LittleEndian.PutUint64(msg[:], token)
	// Blocks while the shim has many datagrams to read, which it does at once.
	err = socket.At(path, func(short string) error {
		return unix.Sendmsg(sock, msg[:], unix.UnixRights(fds...), &unix.SockaddrUnix{Name: short}, 0)
	})
	runtime.KeepAlive(files)
	return os.NewSyscallError("sendmsg", err)
}

// ReceiveFDs reads one datagram that sendFDs wrote. The caller owns the files.
// An error that is no datagram of ours leaves nothing open.
func ReceiveFDs(conn *net.UnixConn) (token uint64, files []*os.File, err error) {
	var msg [8]byte
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(msg[:], oob)
	if err != nil {
		return 0, nil, err
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, nil, nil
	}
	for i := range cmsgs {
		fds, err := unix.ParseUnixRights(&cmsgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	// One that is longer, or has more descriptors, was cut off.
	if n != len(msg) || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		for _, f := range files {
			f.Close()
		}
		return 0, nil, nil
	}
	return binary.LittleEndian.Uint64(msg[:]), files, nil
}

// ReceiveTerminal waits for the terminal that libcontainer's init sends over
// the console socket. It returns an error if the other end is closed first.
func ReceiveTerminal(sock *os.File) (*os.File, error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	var (
		buf  [4096]byte
		oob  = make([]byte, unix.CmsgSpace(4))
		oobn int
		rerr error
	)
	err = raw.Read(func(fd uintptr) bool {
		_, oobn, _, _, rerr = unix.Recvmsg(int(fd), buf[:], oob, unix.MSG_CMSG_CLOEXEC)
		return rerr != unix.EAGAIN && rerr != unix.EINTR
	})
	if err == nil {
		err = rerr
	}
	if err != nil {
		return nil, fmt.Errorf("cannot receive the terminal: %w", err)
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(cmsgs) == 0 {
		return nil, fmt.Errorf("cannot receive the terminal: the process ended before it sent one")
	}
	fds, err := unix.ParseUnixRights(&cmsgs[0])
	if err != nil || len(fds) == 0 {
		return nil, fmt.Errorf("cannot receive the terminal: no descriptor in the message")
	}
	for _, more := range fds[1:] {
		unix.Close(more)
	}
	// Non-blocking, so that Close ends a Read.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "terminal"), nil
}

// SocketPair returns two connected ends; the first one is pollable.
func SocketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "console"), os.NewFile(uintptr(fds[1]), "console"), nil
}

// ResizeTerminal sets the size of the terminal behind f.
func ResizeTerminal(f *os.File, s Size) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ierr error
	err = raw.Control(func(fd uintptr) {
		ierr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Height, Col: s.Width})
	})
	if err != nil {
		return err
	}
	return ierr
}

// SendTerminal passes a terminal on over the console socket, as libcontainer's init
// does. The caller still closes its own.
func SendTerminal(sock, terminal *os.File) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	tty, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var serr, terr error
	err = raw.Control(func(to uintptr) {
		terr = tty.Control(func(fd uintptr) {
			serr = unix.Sendmsg(int(to), []byte("terminal"), unix.UnixRights(int(fd)), nil, 0)
		})
	})
	if err := errors.Join(err, terr, serr); err != nil {
		return fmt.Errorf("cannot send the terminal: %w", err)
	}
	return nil
}
