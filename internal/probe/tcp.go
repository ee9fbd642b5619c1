package probe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/httpget"
)

// tcpCheck opens a connection and closes it again.
type tcpCheck struct{ address string }

func newTCPCheck(action *corev1.TCPSocketAction, container *corev1.Container, ip string) checker {
	port, err := httpget.Port(action.Port, container)
	if err != nil {
		return unable{err}
	}
	host := action.Host
	if host == "" {
		host = ip
	}
	if host == "" {
		return unable{errNoAddress}
	}
	return &tcpCheck{address: net.JoinHostPort(host, strconv.Itoa(port))}
}

func (t *tcpCheck) check(ctx context.Context, timeout time.Duration) verdict {
	conn, err := httpget.Dial(ctx, t.address)
	switch {
	case err == nil:
	case lack(err):
		return void(err)
	case timedOut(ctx, err):
		return failed(fmt.Sprintf("dial tcp %s: i/o timeout (no answer within %s)", t.address, timeout))
	default:
		return failed(err.Error())
	}
	// The connection stood; how it ends says nothing about the server.
	_ = conn.Close()
	return passed("")
}
