package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
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

// grpcClients speak HTTP/2 in clear text and over TLS.
type grpcClients struct{ plain, secure http.RoundTripper }

func newGRPCClients() grpcClients {
	return grpcClients{plain: httpget.NewTransport(false), secure: httpget.NewTransport(true)}
}

// grpcCheck calls grpc.health.v1.Health/Check. The call is one POST over HTTP/2,
// made here by hand: a client of the gRPC library takes some ten goroutines and
// many times the memory, for each check anew.
type grpcCheck struct {
	client http.RoundTripper
	target *url.URL
	call   []byte // the request message in its frame
}

func newGRPCCheck(clients grpcClients, action *corev1.GRPCAction, ip string) checker {
	if ip == "" {
		return unable{errNoAddress}
	}
	g := &grpcCheck{client: clients.plain, target: &url.URL{
		Scheme: "http",
		Host:   net.JoinHostPort(ip, strconv.Itoa(int(action.Port))),
		Path:   "/grpc.health.v1.Health/Check",
	}}
	if action.Mode != nil && *action.Mode == corev1.GRPCProbeModeTLS {
		g.client, g.target.Scheme = clients.secure, "https"
	}
	var message []byte
	if action.Service != nil && *action.Service != "" {
		message = protowire.AppendTag(message, 1, protowire.BytesType)
		message = protowire.AppendString(message, *action.Service)
	}
	g.call = binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	g.call = append(g.call, message...)
	return g
}

func (g *grpcCheck) check(ctx context.Context, timeout time.Duration) verdict {
	for {
		resp, err := g.client.RoundTrip(g.request(ctx))
		if err == nil {
			return g.read(ctx, resp, timeout)
		}
		if lack(err) {
			return void(err)
		}
		if !timedOut(ctx, err) && !errors.Is(err, syscall.ECONNREFUSED) {
			return failed(fmt.Sprintf("error: failed to connect service at %q: %v", g.target.Host, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(grpcRetry):
		}
		if ctx.Err() != nil {
			return failed(fmt.Sprintf("timeout: failed to connect service %q within %s: %v", g.target.Host, timeout, err))
		}
	}
}

func (g *grpcCheck) request(ctx context.Context) *http.Request {
	req := &http.Request{
		Method: http.MethodPost,
		URL:    g.target,
		Header: http.Header{
			"Content-Type": {"application/grpc"},
			"Te":           {"trailers"},
			"User-Agent":   {httpget.UserAgent("probe")},
		},
		Body:          io.NopCloser(bytes.NewReader(g.call)),
		ContentLength: int64(len(g.call)),
	}
	return req.WithContext(ctx)
}

// read judges the answer. Its status is in the trailer, or in the header of an
// answer without message.
func (g *grpcCheck) read(ctx context.Context, resp *http.Response, timeout time.Duration) verdict {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	late := failed(fmt.Sprintf("timeout: health rpc did not complete within %s", timeout))
	switch {
	case err != nil && timedOut(ctx, err):
		return late
	case err != nil:
		return failed(fmt.Sprintf("error: health rpc probe failed: %v", err))
	case resp.StatusCode != http.StatusOK:
		return failed(fmt.Sprintf("error: health rpc probe failed: HTTP status %s from a server that is not gRPC", resp.Status))
	}
	code, message := grpcStatus(resp.Trailer)
	if code == "" {
		code, message = grpcStatus(resp.Header)
	}
	switch code {
	case grpcOK:
	case grpcUnimplemented:
		return failed("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + message)
	case grpcDeadlineExceeded:
		return late
	case "":
		return failed("error: health rpc probe failed: the answer has no grpc-status")
	default:
		return failed(fmt.Sprintf("error: health rpc probe failed: grpc-status %s: %s", code, message))
	}
	status, err := healthStatus(body)
	if err != nil {
		return failed(fmt.Sprintf("error: health rpc probe failed: %v", err))
	}
	if status != "SERVING" {
		return failed(fmt.Sprintf("service unhealthy (responded with %q)", status))
	}
	return passed("service healthy")
}

func grpcStatus(h http.Header) (code, message string) {
	message = h.Get("Grpc-Message")
	if plain, err := url.PathUnescape(message); err == nil {
		message = plain
	}
	return h.Get("Grpc-Status"), message
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
