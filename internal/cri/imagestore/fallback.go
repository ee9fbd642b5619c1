package imagestore

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"

	"github.com/containerd/containerd/v2/core/remotes/docker"
)

// withPlainLoopback lets registries on a loopback address be plain http servers
// that hang up on a TLS hello. containerd's own fallback knows only those that
// answer it with HTTP.
func withPlainLoopback(hosts docker.RegistryHosts) docker.RegistryHosts {
	return func(host string) ([]docker.RegistryHost, error) {
		list, err := hosts(host)
		for _, h := range list {
			match, _ := docker.MatchLocalhost(h.Host)
			_, port, _ := net.SplitHostPort(h.Host)
			if h.Scheme != "https" || !match || port == "" || port == "443" || h.Client == nil {
				continue
			}
			h.Client.Transport = &plainFallback{next: h.Client.Transport}
		}
		return list, err
	}
}

// plainFallback goes on with plain http once the server hung up during a TLS
// handshake. It is safe for concurrent use.
type plainFallback struct {
	next  http.RoundTripper
	plain atomic.Bool
}

func (f *plainFallback) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return f.next.RoundTrip(r)
	}
	if f.plain.Load() {
		return f.next.RoundTrip(asPlain(r))
	}
	var hungUp atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				hungUp.Store(true)
			}
		},
	})
	resp, err := f.next.RoundTrip(r.WithContext(ctx))
	if err == nil || !hungUp.Load() {
		return resp, err
	}
	again := asPlain(r)
	if r.Body != nil {
		if r.GetBody == nil {
			return resp, err
		}
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	f.plain.Store(true)
	return f.next.RoundTrip(again)
}

func asPlain(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return r
}
