package probe

import (
	"net"
	"syscall"
	"testing"
)

// setBacklog changes how many connections may wait to be accepted.
func setBacklog(t *testing.T, l *net.TCPListener, n int) {
	t.Helper()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if err := syscall.Listen(int(fd), n); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
