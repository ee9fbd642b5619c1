package stream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	clientcommand "k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// fakeRuntime echoes; with hang it waits for the end of its context.
type fakeRuntime struct {
	hang    bool
	started chan struct{}
	ended   chan error
}

func (f fakeRuntime) Exec(ctx context.Context, id string, cmd []string, _ io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	if f.hang {
		close(f.started)
		<-ctx.Done()
		f.ended <- ctx.Err()
		return ctx.Err()
	}
	_, err := io.WriteString(out, id+" "+strings.Join(cmd, " "))
	return err
}

func (fakeRuntime) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return nil
}

func (fakeRuntime) PortForward(context.Context, string, int32, io.ReadWriteCloser) error { return nil }

// serve runs a server until the returned function is called, which waits.
func serve(t *testing.T, r streaming.Runtime) (s *Server, stop func()) {
	t.Helper()
	s, err := Listen(Config{Runtime: r})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	}
}

func run(t *testing.T, s *Server, out io.Writer) error {
	t.Helper()
	resp, err := s.Exec(&runtimeapi.ExecRequest{ContainerId: "c1", Cmd: []string{"say", "it"}, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(resp.GetUrl())
	if err != nil {
		t.Fatal(err)
	}
	e, err := clientcommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	return e.StreamWithContext(context.Background(), clientcommand.StreamOptions{Stdout: out})
}

func TestExec(t *testing.T) {
	s, stop := serve(t, fakeRuntime{})
	defer stop()
	var out strings.Builder
	if err := run(t, s, &out); err != nil || out.String() != "c1 say it" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestUnknownTokensAreRefused(t *testing.T) {
	s, stop := serve(t, fakeRuntime{})
	defer stop()
	for _, path := range []string{"/exec/guess", "/attach/guess", "/portforward/guess", "/"} {
		resp, err := http.Post("http://"+s.listener.Addr().String()+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

func TestBadRequestsGetNoURL(t *testing.T) {
	s, stop := serve(t, fakeRuntime{})
	defer stop()
	if _, err := s.Exec(&runtimeapi.ExecRequest{ContainerId: "c1"}); err == nil {
		t.Error("exec without streams")
	}
	if _, err := s.Attach(&runtimeapi.AttachRequest{Stdout: true}); err == nil {
		t.Error("attach without container")
	}
	if _, err := s.PortForward(&runtimeapi.PortForwardRequest{}); err == nil {
		t.Error("port-forward without sandbox")
	}
}

// The end of the server ends its streams, and Run waits for them.
func TestStreamsEndWithTheServer(t *testing.T) {
	r := fakeRuntime{hang: true, started: make(chan struct{}), ended: make(chan error, 1)}
	s, stop := serve(t, r)
	client := make(chan error, 1)
	go func() { client <- run(t, s, io.Discard) }()
	<-r.started
	stop()
	select {
	case err := <-r.ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	default:
		t.Error("Run did not wait for the stream")
	}
	<-client
}

func TestCloseWithoutRun(t *testing.T) {
	s, err := Listen(Config{Runtime: fakeRuntime{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get("http://" + s.listener.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	if _, err := Listen(Config{}); err == nil {
		t.Error("a server without a runtime")
	}
}
