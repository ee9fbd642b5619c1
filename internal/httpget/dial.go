package httpget

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// dialer sends no keep-alive packets: connections live for one check.
var dialer = net.Dialer{KeepAlive: -1}

// Conn is a connection of one check. Its Close leaves neither side in TIME_WAIT
// (kubernetes#89898: a socket a check, 60 s each, until the ports are used up)
// and never waits. The kubelet lets close linger for a second instead, which
// holds a thread for as long when the peer doesn't answer.
type Conn struct {
	*net.TCPConn
	// secure says that TLS's own goodbye goes before Close.
	secure bool
}

// Dial opens a connection for one check or one request. Cancelling ctx abandons
// the attempt; it has no effect on an open connection.
func Dial(ctx context.Context, address string) (Conn, error) {
	tcp, err := dial(ctx, address)
	if err != nil {
		return Conn{}, err
	}
	if err := tcp.SetLinger(0); err != nil {
		tcp.Close()
		return Conn{}, err
	}
	return Conn{TCPConn: tcp}, nil
}

// DialTLS opens a connection with TLS on it, for one of the given protocols
// (ALPN). Nothing is verified: a probe asks whether a server works, not who it is.
// ctx ends the handshake too.
func DialTLS(ctx context.Context, address string, protocols ...string) (*tls.Conn, error) {
	c, err := Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	c.secure = true
	secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	if err := secure.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return secure, nil
}

// dial skips the resolver where the host is an address, as it nearly always is.
func dial(ctx context.Context, address string) (*net.TCPConn, error) {
	if to, err := netip.ParseAddrPort(address); err == nil {
		tcp, err := dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, to)
		var op *net.OpError
		if errors.As(err, &op) {
			op.Source = nil // a zero address, of no use to a reader
		}
		return tcp, err
	}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a TCP connection")
	}
	return tcp, nil
}

// Close ends the connection for good: with FIN, so that the server reads a clean
// end of file, and then RST, so that both kernels forget it. Where the server
// has ended its half already, or TLS has said goodbye, RST alone will do and no
// program sees it; a FIN would then leave the server in TIME_WAIT.
func (c Conn) Close() error {
	if !c.secure && !c.peerClosed() {
		// It fails where the connection is broken; nothing is left to say then.
		_ = c.CloseWrite()
	}
	return c.TCPConn.Close()
}

// closeWait is TCP_CLOSE_WAIT of the kernel's tcp_states.h.
const closeWait = 8

func (c Conn) peerClosed() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	var state uint8
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	})
	return err != nil || state == closeWait
}
