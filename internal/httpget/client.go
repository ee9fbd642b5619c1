package httpget

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// maxHeaderBytes limits what a server can make us keep of its answer.
const maxHeaderBytes = 256 << 10

// maxRedirects is how many redirects are followed, as in net/http.
const maxRedirects = 10

// Clients send requests. They are safe for concurrent use.
type Clients struct {
	// HTTP1 speaks HTTP/1.1 in clear text; over TLS the server chooses 1.1 or 2.
	HTTP1 *http.Client
	// H2C speaks HTTP/2 in clear text with prior knowledge, which the handler
	// asks for with protocol: HTTP2; over TLS it is like HTTP1.
	H2C *http.Client
}

// NewClients returns clients that follow redirects within the host they asked
// and hand out a redirect to another host as the answer.
func NewClients() *Clients {
	secure := NewTransport(true)
	secure.Protocols.SetHTTP1(true)
	h2c := NewTransport(false)
	return &Clients{
		HTTP1: &http.Client{Transport: byScheme{plain: clearText{}, secure: secure}, CheckRedirect: sameHost},
		H2C:   &http.Client{Transport: byScheme{plain: h2c, secure: secure}, CheckRedirect: sameHost},
	}
}

// NewTransport returns a transport for HTTP/2, over TLS or in clear text, that
// uses each connection once, verifies no certificate and knows no proxy.
func NewTransport(secure bool) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP2(secure)
	protocols.SetUnencryptedHTTP2(!secure)
	return &http.Transport{
		Protocols: &protocols,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			c, err := Dial(ctx, address)
			if err != nil {
				return nil, err
			}
			c.secure = secure
			return c, nil
		},
		// The API promises that certificates are not verified: a probe asks
		// whether a server works, not who it is.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

type byScheme struct{ plain, secure http.RoundTripper }

func (b byScheme) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "https" {
		return b.secure.RoundTrip(req)
	}
	return b.plain.RoundTrip(req)
}

// clearText is a transport for HTTP/1.1 GETs in clear text. It does all of a
// request in the caller's goroutine, where http.Transport needs two more and
// several times the memory: most probes are of this kind, and there may be
// thousands a second.
type clearText struct{}

func (clearText) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	conn, err := Dial(ctx, address(req))
	if err != nil {
		return nil, cause(ctx, err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		// It fails only on a closed connection, which the write then reports.
		_ = conn.SetDeadline(deadline)
	}
	x := &exchange{
		conn:    conn,
		limited: io.LimitedReader{R: conn.TCPConn, N: maxHeaderBytes},
		buf:     bufferPool.Get().(*buffers),
		stop:    context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }),
	}
	x.buf.in.Reset(&x.limited)
	x.buf.out.Reset(conn.TCPConn)
	resp, err := x.send(req)
	if err != nil {
		_ = x.Close()
		return nil, cause(ctx, err)
	}
	return resp, nil
}

// address is the host and port of a request; redirects may leave out the port.
func address(req *http.Request) string {
	if req.URL.Port() != "" {
		return req.URL.Host
	}
	return net.JoinHostPort(req.URL.Hostname(), "80")
}

// cause returns the end of ctx in place of the I/O error that it led to.
func cause(ctx context.Context, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// The connection's timer was quicker than the context's.
		return context.DeadlineExceeded
	}
	return err
}
