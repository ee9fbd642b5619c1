package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	gwebsocket "github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	clientcommand "k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/cri-streaming/pkg/streaming"
	criforward "k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// What crictl and kubectl speak over WebSocket, and cri-streaming does not: the
// fifth version of exec's protocol, which can end the input alone, and SPDY in the
// messages of a port-forward. Both are carried to this server's own port, in SPDY.

// commandStreams are the streams that an exec or attach was registered with.
type commandStreams struct {
	stdin, stdout, stderr, tty bool
	registered                 time.Time
}

// tokenLife is how long cri-streaming knows a token.
const tokenLife = time.Minute

// remember keeps the streams of what has this URL until it is used.
func (s *Server) remember(streamURL string, c commandStreams) {
	u, err := url.Parse(streamURL)
	if err != nil {
		return // cri-streaming made it
	}
	c.registered = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, old := range s.commands {
		if time.Since(old.registered) > tokenLife {
			delete(s.commands, token)
		}
	}
	s.commands[path.Base(u.Path)] = c
}

// recall gives the streams once.
func (s *Server) recall(token string) (commandStreams, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.commands[token]
	delete(s.commands, token)
	return c, ok
}

// translate serves exec and attach to a client of the protocol's fifth version.
func (s *Server) translate(w http.ResponseWriter, r *http.Request, want commandStreams) {
	channels := make([]wsstream.ChannelType, remotecommand.StreamResize+1)
	for id, c := range map[int]struct {
		used bool
		kind wsstream.ChannelType
	}{
		remotecommand.StreamStdIn: {want.stdin, wsstream.ReadChannel}, remotecommand.StreamStdOut: {want.stdout, wsstream.WriteChannel},
		remotecommand.StreamStdErr: {want.stderr, wsstream.WriteChannel}, remotecommand.StreamErr: {true, wsstream.WriteChannel},
		remotecommand.StreamResize: {true, wsstream.ReadChannel},
	} {
		if channels[id] = wsstream.IgnoreChannel; c.used {
			channels[id] = c.kind
		}
	}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{remotecommand.StreamProtocolV5Name: {Binary: true, Channels: channels}})
	conn.SetIdleTimeout(streaming.DefaultConfig.StreamIdleTimeout)
	_, streams, err := conn.Open(w, r)
	if err != nil {
		return // it has answered
	}
	defer conn.Close()
	options := clientcommand.StreamOptions{Tty: want.tty}
	if want.stdin {
		options.Stdin = streams[remotecommand.StreamStdIn]
	}
	if want.stdout {
		options.Stdout = streams[remotecommand.StreamStdOut]
	}
	if want.stderr {
		options.Stderr = streams[remotecommand.StreamStdErr]
	}
	if want.tty {
		options.TerminalSizeQueue = sizes{json.NewDecoder(streams[remotecommand.StreamResize])}
	}
	err = s.command(r.Context(), r.URL.Path, options)
	// The client may be gone, and needs no word then.
	_ = json.NewEncoder(streams[remotecommand.StreamErr]).Encode(statusOf(err))
}

// command runs what the path's token stands for over SPDY.
func (s *Server) command(ctx context.Context, path string, options clientcommand.StreamOptions) error {
	transport, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{Proxier: func(*http.Request) (*url.URL, error) { return nil, nil }})
	if err != nil {
		return err
	}
	at := &url.URL{Scheme: "http", Host: s.listener.Addr().String(), Path: path}
	e, err := clientcommand.NewSPDYExecutorRejectRedirects(transport, clientspdy.NewUpgraderForStreaming(transport), http.MethodPost, at)
	if err != nil {
		return err
	}
	return e.StreamWithContext(ctx, options)
}

// sizes are those of the client's terminal, as they come.
type sizes struct{ *json.Decoder }

func (s sizes) Next() *clientcommand.TerminalSize {
	size := &clientcommand.TerminalSize{}
	if err := s.Decode(size); err != nil {
		return nil // there are no more
	}
	return size
}

// statusOf is what clients are told of a command's end.
func statusOf(err error) metav1.Status {
	if err == nil {
		return metav1.Status{Status: metav1.StatusSuccess}
	}
	var told *apierrors.StatusError
	if errors.As(err, &told) {
		return told.ErrStatus
	}
	var exit utilexec.CodeExitError
	if !errors.As(err, &exit) || !exit.Exited() {
		return apierrors.NewInternalError(err).ErrStatus
	}
	return metav1.Status{
		Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: err.Error(),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
			{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitStatus())},
		}},
	}
}

// tunnel serves a port-forward whose SPDY is in the messages of a WebSocket.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request) {
	upstream, err := s.upgrade(r)
	if err != nil {
		var refused *refusal
		if errors.As(err, &refused) {
			http.Error(w, refused.Error(), refused.code)
			return
		}
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer upstream.Close()
	upgrader := gwebsocket.Upgrader{Subprotocols: []string{criforward.WebsocketsSPDYTunnelingPortForwardV1}}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // it has answered
	}
	client := portforward.NewTunnelingConnection("client", ws)
	defer client.Close()
	ended := make(chan struct{}, 2)
	for _, c := range [][2]net.Conn{{client, upstream}, {upstream, client}} {
		s.handlers.Go(func() {
			_, _ = io.Copy(c[0], c[1]) // either side may leave at any time
			ended <- struct{}{}
		})
	}
	select {
	case <-ended:
	case <-r.Context().Done():
	}
}

// refusal is an answer of this server that is no upgrade.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// upgrade connects to what the request's token stands for, in SPDY.
func (s *Server) upgrade(r *http.Request) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(r.Context(), "tcp", s.listener.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("cannot reach the server of streams: %w", err)
	}
	req := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: r.URL.Path}, Host: conn.RemoteAddr().String(), Header: http.Header{
		httpstream.HeaderConnection: {httpstream.HeaderUpgrade}, httpstream.HeaderUpgrade: {spdy.HeaderSpdy31},
		httpstream.HeaderProtocolVersion: {criforward.PortForwardV1Name},
	}}
	in := bufio.NewReader(conn)
	err = req.Write(conn)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(in, req)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("cannot open the streams of a port-forward: %w", err)
	}
	defer resp.Body.Close() // of an upgrade it's empty
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		conn.Close()
		return nil, &refusal{resp.StatusCode, string(text)}
	}
	return buffered{conn, in}, nil
}

// buffered is a connection of which some was read ahead.
type buffered struct {
	net.Conn
	in io.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.in.Read(p) }
