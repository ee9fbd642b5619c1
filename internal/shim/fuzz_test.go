package shim

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever comes over the socket for descriptors: a message of ours arrives whole,
// any other leaves nothing open.
func FuzzReceiveFDs(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint8(1))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint8(4))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint8(9)) // more than fit
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, uint8(1))
	f.Add([]byte{1}, uint8(2))
	f.Add([]byte{}, uint8(0))
	path := filepath.Join(f.TempDir(), "fds.sock")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { unix.Close(sock) })
	sent, err := os.Open(os.DevNull)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { sent.Close() })
	f.Fuzz(func(t *testing.T, msg []byte, n uint8) {
		if len(msg) > 1000 {
			return
		}
		fds := make([]int, n%16)
		for i := range fds {
			fds[i] = int(sent.Fd())
		}
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		before := openDescriptors(t)
		if err := unix.Sendmsg(sock, msg, rights, &unix.SockaddrUnix{Name: path}, 0); err != nil {
			t.Fatal(err)
		}
		token, files, err := ReceiveFDs(conn)
		if err != nil {
			t.Fatal(err)
		}
		ours := len(msg) == 8 && len(fds) <= maxFDs
		switch {
		case ours && (token != binary.LittleEndian.Uint64(msg) || len(files) != len(fds)):
			t.Errorf("of a message with %d descriptors came %d, token %#x", len(fds), len(files), token)
		case !ours && len(files) > 0:
			t.Errorf("%d descriptors of a message of %d bytes with %d descriptors were taken", len(files), len(msg), len(fds))
		}
		for _, file := range files {
			file.Close()
		}
		if after := openDescriptors(t); after != before {
			t.Errorf("%d descriptors are open, before %d", after, before)
		}
	})
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
