// Package stream serves the byte streams of exec, attach and port-forward over
// HTTP, as the CRI wants it: a request is registered first and answered with a
// URL that holds a token; the token works once and for a minute.
//
// It is k8s.io/cri-streaming (SPDY and WebSocket) behind a listener that is
// open from the start, so that the URL is known; see websocket.go for what today's
// clients speak over WebSocket beyond that.
package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Config says where to serve and whom to ask.
type Config struct {
	Addr    string            // host:port; default a free port of 127.0.0.1. Who reaches it and has a token may use the stream.
	Runtime streaming.Runtime // connects the streams; required
}

// Server answers requests with URLs and serves them while Run runs.
type Server struct {
	listener net.Listener
	requests streaming.Server
	http     *http.Server
	handlers sync.WaitGroup // streams under way

	mu       sync.Mutex
	commands map[string]commandStreams // by token; guarded by mu
}

// Listen opens the port. Nothing is served before Run.
func Listen(cfg Config) (*Server, error) {
	if cfg.Runtime == nil {
		return nil, errors.New("stream: Config.Runtime is required")
	}
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for exec and attach streams: %w", err)
	}
	c := streaming.DefaultConfig
	c.Addr = l.Addr().String()
	c.BaseURL = &url.URL{Scheme: "http", Host: c.Addr}
	requests, err := streaming.NewServer(c, cfg.Runtime)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot set up streaming: %w", err)
	}
	s := &Server{listener: l, requests: requests, commands: make(map[string]commandStreams)}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve)}
	return s, nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.handlers.Add(1)
	defer s.handlers.Done()
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		s.tunnel(w, r)
		return
	}
	if c, ok := s.recall(path.Base(r.URL.Path)); ok && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		s.translate(w, r, c)
		return
	}
	s.requests.ServeHTTP(w, r)
}

// Run serves until ctx ends, then cuts what still streams and waits for it.
// It may be called once.
func (s *Server) Run(ctx context.Context) error {
	defer s.handlers.Wait()
	// Connections that became streams are no longer the server's to close: they
	// learn of the end by their context.
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { s.http.Close() })
	defer stop()
	err := s.http.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return ctx.Err()
	}
	return fmt.Errorf("cannot serve streams: %w", err)
}

// Close stops listening; needed only if Run was not called.
func (s *Server) Close() error {
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return s.http.Close()
}

// Exec registers a command and gives its URL.
func (s *Server) Exec(r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	resp, err := s.requests.GetExec(r)
	if err != nil {
		return nil, err
	}
	s.remember(resp.GetUrl(), commandStreams{stdin: r.GetStdin(), stdout: r.GetStdout(), stderr: r.GetStderr(), tty: r.GetTty()})
	return resp, nil
}

// Attach registers an attachment to a running container and gives its URL.
func (s *Server) Attach(r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	resp, err := s.requests.GetAttach(r)
	if err != nil {
		return nil, err
	}
	s.remember(resp.GetUrl(), commandStreams{stdin: r.GetStdin(), stdout: r.GetStdout(), stderr: r.GetStderr(), tty: r.GetTty()})
	return resp, nil
}

// PortForward registers a forwarding to ports of a sandbox and gives its URL.
func (s *Server) PortForward(r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return s.requests.GetPortForward(r)
}
