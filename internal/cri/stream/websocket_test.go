package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	clientforward "k8s.io/client-go/tools/portforward"
	clientcommand "k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/exec"
)

// echoRuntime gives back what comes in, and then ends with an exit code or, of a
// port, with the stream's end.
type echoRuntime struct {
	sizes chan remotecommand.TerminalSize
}

func (e echoRuntime) Exec(_ context.Context, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	if tty {
		e.sizes <- <-resize
	}
	if in != nil {
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
	if errOut != nil {
		fmt.Fprint(errOut, "the end")
	}
	if slices.Contains(cmd, "fail") {
		return exec.CodeExitError{Err: errors.New("command failed"), Code: 3}
	}
	return nil
}

func (e echoRuntime) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return e.Exec(ctx, id, nil, in, out, errOut, tty, resize)
}

func (echoRuntime) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	fmt.Fprintf(stream, "port %d: ", port)
	_, err := io.Copy(stream, stream)
	return err
}

// overWebSocket is what a client of today does.
func overWebSocket(t *testing.T, address string, o clientcommand.StreamOptions) error {
	t.Helper()
	e, err := clientcommand.NewWebSocketExecutor(&rest.Config{}, http.MethodGet, address)
	if err != nil {
		t.Fatal(err)
	}
	return e.StreamWithContext(t.Context(), o)
}

func TestCommandsOverWebSocket(t *testing.T) {
	s, stop := serve(t, echoRuntime{})
	defer stop()
	in := strings.Repeat("0123456789", 10_000)
	for name, c := range map[string]struct {
		url  func() (string, error)
		code int
	}{
		"exec": {func() (string, error) {
			r, err := s.Exec(&runtimeapi.ExecRequest{ContainerId: "c1", Cmd: []string{"cat"}, Stdin: true, Stdout: true, Stderr: true})
			return r.GetUrl(), err
		}, 0},
		"exec of what fails": {func() (string, error) {
			r, err := s.Exec(&runtimeapi.ExecRequest{ContainerId: "c1", Cmd: []string{"fail"}, Stdin: true, Stdout: true, Stderr: true})
			return r.GetUrl(), err
		}, 3},
		"attach": {func() (string, error) {
			r, err := s.Attach(&runtimeapi.AttachRequest{ContainerId: "c1", Stdin: true, Stdout: true, Stderr: true})
			return r.GetUrl(), err
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			address, err := c.url()
			if err != nil {
				t.Fatal(err)
			}
			// The output after the input's end comes only if the end arrives.
			var out, errOut strings.Builder
			err = overWebSocket(t, address, clientcommand.StreamOptions{Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errOut})
			var exit utilexec.CodeExitError
			if c.code == 0 && err != nil || c.code != 0 && (!errors.As(err, &exit) || exit.Code != c.code) {
				t.Errorf("%v, want exit code %d", err, c.code)
			}
			if out.String() != in || errOut.String() != "the end" {
				t.Errorf("%d bytes and %q came back, want %d", out.Len(), errOut.String(), len(in))
			}
			if err := overWebSocket(t, address, clientcommand.StreamOptions{Stdout: io.Discard}); err == nil {
				t.Error("the token works twice")
			}
		})
	}
}

// oneSize is the size of a terminal that stays as it is.
type oneSize chan *clientcommand.TerminalSize

func (o oneSize) Next() *clientcommand.TerminalSize { return <-o }

func TestTerminalOverWebSocket(t *testing.T) {
	r := echoRuntime{sizes: make(chan remotecommand.TerminalSize, 1)}
	s, stop := serve(t, r)
	defer stop()
	resp, err := s.Exec(&runtimeapi.ExecRequest{ContainerId: "c1", Cmd: []string{"sh"}, Stdin: true, Stdout: true, Tty: true})
	if err != nil {
		t.Fatal(err)
	}
	size := make(oneSize, 1)
	size <- &clientcommand.TerminalSize{Width: 120, Height: 50}
	defer close(size)
	var out strings.Builder
	if err := overWebSocket(t, resp.GetUrl(), clientcommand.StreamOptions{Stdin: strings.NewReader("typed"), Stdout: &out, Tty: true, TerminalSizeQueue: size}); err != nil {
		t.Error(err)
	}
	if got := <-r.sizes; got.Width != 120 || got.Height != 50 || out.String() != "typed" {
		t.Errorf("size %v, output %q", got, out.String())
	}
}

func forwardOverWebSocket(t *testing.T, address string) (httpstream.Connection, error) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	d, err := clientforward.NewSPDYOverWebsocketDialerForStreaming(u, &rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := d.Dial(portforward.ProtocolV1Name)
	return conn, err
}

func TestPortForwardOverWebSocket(t *testing.T) {
	s, stop := serve(t, echoRuntime{})
	defer stop()
	resp, err := s.PortForward(&runtimeapi.PortForwardRequest{PodSandboxId: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := forwardOverWebSocket(t, resp.GetUrl())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for request := range 3 {
		headers := http.Header{}
		headers.Set(portforward.PortHeader, "80")
		headers.Set(portforward.PortForwardRequestIDHeader, fmt.Sprint(request))
		headers.Set(portforward.StreamType, portforward.StreamTypeError)
		errors, err := conn.CreateStream(headers)
		if err != nil {
			t.Fatal(err)
		}
		errors.Close() // nothing goes in here
		headers.Set(portforward.StreamType, portforward.StreamTypeData)
		data, err := conn.CreateStream(headers)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(data, "through the tunnel"); err != nil {
			t.Fatal(err)
		}
		data.Close()
		if back, err := io.ReadAll(data); err != nil || string(back) != "port 80: through the tunnel" {
			t.Errorf("%q, %v", back, err)
		}
		if told, err := io.ReadAll(errors); err != nil || len(told) > 0 {
			t.Errorf("error %q, %v", told, err)
		}
	}
	if conn, err := forwardOverWebSocket(t, resp.GetUrl()); err == nil {
		conn.Close()
		t.Error("the token works twice")
	}
}

// A tunnel that stays open does not keep the server.
func TestTunnelsEndWithTheServer(t *testing.T) {
	s, stop := serve(t, echoRuntime{})
	resp, err := s.PortForward(&runtimeapi.PortForwardRequest{PodSandboxId: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := forwardOverWebSocket(t, resp.GetUrl())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop()
	<-conn.CloseChan()
}
