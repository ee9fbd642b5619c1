package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/httpget"
)

var errNoAddress = errors.New("the pod has no address yet")

// grpcRetry is the wait between attempts to reach a server that refuses
// connections, within the check's time-out.
const grpcRetry = 250 * time.Millisecond

// Codes of gRPC that a check tells apart.
const (
	grpcOK               = "0"
	grpcDeadlineExceeded = "4"
	grpcUnimplemented    = "12"
)

// servingStatus is the enum of grpc.health.v1.HealthCheckResponse.
var servingStatus = []string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

// grpcCheck calls grpc.health.v1.Health/Check.
type grpcCheck struct {
	address string
	secure  bool // over TLS
	call    []byte
}

func newGRPCCheck(action *corev1.GRPCAction, ip string) checker {
	if ip == "" {
		return unable{errNoAddress}
	}
	g := &grpcCheck{
		address: net.JoinHostPort(ip, strconv.Itoa(int(action.Port))),
		secure:  action.Mode != nil && *action.Mode == corev1.GRPCProbeModeTLS,
	}
	var message []byte
	if action.Service != nil && *action.Service != "" {
		message = protowire.AppendTag(message, 1, protowire.BytesType)
		message = protowire.AppendString(message, *action.Service)
	}
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	g.call = encodeCall(g.address, g.secure, "/grpc.health.v1.Health/Check", append(framed, message...))
	return g
}

func (g *grpcCheck) check(ctx context.Context, timeout time.Duration) verdict {
	for {
		conn, err := g.connect(ctx)
		switch {
		case err == nil:
			answer, err := exchange(ctx, conn, g.call)
			_ = conn.Close() // the answer is there, or the error
			return answer.judge(ctx, err, timeout)
		case lack(err):
			return void(err)
		case !timedOut(ctx, err) && !errors.Is(err, syscall.ECONNREFUSED):
			return failed(fmt.Sprintf("error: failed to connect service at %q: %v", g.address, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(grpcRetry):
		}
		if ctx.Err() != nil {
			return failed(fmt.Sprintf("timeout: failed to connect service %q within %s: %v", g.address, timeout, err))
		}
	}
}

// connect opens a connection that ends with ctx.
func (g *grpcCheck) connect(ctx context.Context) (net.Conn, error) {
	if !g.secure {
		return httpget.Dial(ctx, g.address)
	}
	secure, err := httpget.DialTLS(ctx, g.address, "h2")
	if err != nil {
		return nil, err
	}
	if p := secure.ConnectionState().NegotiatedProtocol; p != "h2" {
		secure.Close()
		return nil, fmt.Errorf("the server doesn't offer HTTP/2 over TLS (ALPN: %q)", p)
	}
	return secure, nil
}

// judge says what the answer to a health call means; err is why there is none.
func (a answer) judge(ctx context.Context, err error, timeout time.Duration) verdict {
	late := failed(fmt.Sprintf("timeout: health rpc did not complete within %s", timeout))
	switch {
	case err != nil && timedOut(ctx, err):
		return late
	case err != nil:
		return failed(fmt.Sprintf("error: health rpc probe failed: %v", err))
	case a.httpStatus != "200":
		return failed(fmt.Sprintf("error: health rpc probe failed: HTTP status %s from a server that is not gRPC", a.httpStatus))
	}
	switch a.status {
	case grpcOK:
	case grpcUnimplemented:
		return failed("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + a.message)
	case grpcDeadlineExceeded:
		return late
	case "":
		return failed("error: health rpc probe failed: the answer has no grpc-status")
	default:
		return failed(fmt.Sprintf("error: health rpc probe failed: grpc-status %s: %s", a.status, a.message))
	}
	status, err := healthStatus(a.body)
	if err != nil {
		return failed(fmt.Sprintf("error: health rpc probe failed: %v", err))
	}
	if status != "SERVING" {
		return failed(fmt.Sprintf("service unhealthy (responded with %q)", status))
	}
	return passed("service healthy")
}

// healthStatus reads the framed HealthCheckResponse.
func healthStatus(body []byte) (string, error) {
	if len(body) < 5 || body[0] != 0 || uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-5) {
		return "", errors.New("the answer is no single uncompressed message")
	}
	var status uint64
	for message := body[5:]; len(message) > 0; {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return "", fmt.Errorf("cannot read the answer: %w", protowire.ParseError(n))
		}
		message = message[n:]
		if number == 1 && kind == protowire.VarintType {
			status, n = protowire.ConsumeVarint(message)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return "", fmt.Errorf("cannot read the answer: %w", protowire.ParseError(n))
		}
		message = message[n:]
	}
	if status < uint64(len(servingStatus)) {
		return servingStatus[status], nil
	}
	return strconv.FormatUint(status, 10), nil
}
