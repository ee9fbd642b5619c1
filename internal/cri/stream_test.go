package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
)

// executor connects to a stream as the node's API does. (WebSocket clients of
// today speak a newer protocol, which API servers translate to this one.)
func executor(t *testing.T, rawURL string) remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRealExecStreams(t *testing.T) {
	p := real(t).pod(t)
	id := p.start(nil, "sleep")
	open := func(r *runtimeapi.ExecRequest) remotecommand.Executor {
		r.ContainerId = id
		resp, err := p.Exec(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return executor(t, resp.GetUrl())
	}
	var out, errOut bytes.Buffer
	text := strings.Repeat("through the pipe\n", 10000)
	err := open(&runtimeapi.ExecRequest{Cmd: []string{"/inside", "cat"}, Stdin: true, Stdout: true, Stderr: true}).
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(text), Stdout: &out, Stderr: &errOut})
	if err != nil || out.String() != text {
		t.Errorf("%v; %d of %d bytes came back; %s", err, out.Len(), len(text), errOut.String())
	}
	out.Reset()
	err = open(&runtimeapi.ExecRequest{Cmd: []string{"/inside", "stderr", "oops"}, Stdout: true, Stderr: true}).
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut})
	if err != nil || out.String() != "out\n" || errOut.String() != "oops\n" {
		t.Errorf("%v %q %q", err, out.String(), errOut.String())
	}
	err = open(&runtimeapi.ExecRequest{Cmd: []string{"/inside", "exit", "9"}, Stdout: true, Stderr: true}).
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut})
	var code utilexec.ExitError
	if !errors.As(err, &code) || code.ExitStatus() != 9 {
		t.Errorf("error %v, want exit code 9", err)
	}
	out.Reset()
	err = open(&runtimeapi.ExecRequest{Cmd: []string{"/inside", "tty"}, Stdin: true, Stdout: true, Tty: true}).
		StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin: strings.NewReader(""), Stdout: &out, Tty: true, TerminalSizeQueue: sizes{{Width: 99, Height: 33}}.queue(),
		})
	if err != nil || out.String() != "size 99x33 TERM=xterm\r\n" {
		t.Errorf("terminal: %v %q", err, out.String())
	}
	err = open(&runtimeapi.ExecRequest{Cmd: []string{"/nowhere"}, Stdout: true, Stderr: true}).
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut})
	if err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("no such command: %v", err)
	}
}

type sizes []remotecommand.TerminalSize

func (s sizes) queue() remotecommand.TerminalSizeQueue { return &s }

func (s *sizes) Next() *remotecommand.TerminalSize {
	if len(*s) == 0 {
		return nil
	}
	next := (*s)[0]
	*s = (*s)[1:]
	return &next
}

func TestRealExecTimeout(t *testing.T) {
	p := real(t).pod(t)
	id := p.start(nil, "sleep")
	_, _, err := p.ExecSync(t.Context(), id, []string{"/inside", "spawn", "3"}, 300*time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	for range 500 {
		if v := p.parse(p.exec(id, "report")); !strings.Contains(fmt.Sprint(v.Processes), "/inside spawn") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("the command outlives its time")
}

func TestRealAttach(t *testing.T) {
	p := real(t).pod(t)
	id := p.start(func(c ctrConfig) { c.Stdin, c.StdinOnce = true, true }, "cat")
	resp, err := p.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = executor(t, resp.GetUrl()).StreamWithContext(t.Context(), remotecommand.StreamOptions{
		Stdin: strings.NewReader("said by the client\n"), Stdout: &out, Stderr: io.Discard,
	})
	if err != nil || out.String() != "said by the client\n" {
		t.Errorf("%v %q", err, out.String())
	}
	// Its input has ended with the client.
	if st := p.await(id); st.GetExitCode() != 0 {
		t.Errorf("status %v", st)
	}
	if got := p.log(id); got != "said by the client\n" {
		t.Errorf("log %q", got)
	}
}

func TestRealTokensWorkOnce(t *testing.T) {
	p := real(t).pod(t)
	id := p.start(nil, "sleep")
	resp, err := p.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"/inside", "exit", "0"}, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		err := executor(t, resp.GetUrl()).StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if (err == nil) != want {
			t.Errorf("use %d: %v", i+1, err)
		}
	}
}

func TestRealPortForward(t *testing.T) {
	p := real(t).pod(t)
	id := p.start(nil, "serve", "8080")
	p.awaitLog(id, "listening")
	resp, err := p.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: p.id, Port: []int32{8080}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(resp.GetUrl())
	if err != nil {
		t.Fatal(err)
	}
	roundTripper, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, u)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		wantEcho(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))))
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRealHostPort(t *testing.T) {
	p := real(t).pod(t, func(c podConfig) {
		c.PortMappings = []*runtimeapi.PortMapping{{HostPort: 18080, ContainerPort: 8080}}
	})
	id := p.start(nil, "serve", "8080")
	p.awaitLog(id, "listening")
	r, err := p.PodSandboxStatus(t.Context(), p.id, false)
	if err != nil {
		t.Fatal(err)
	}
	wantEcho(t, net.JoinHostPort(r.GetStatus().GetNetwork().GetIp(), "8080"))
	wantEcho(t, "127.0.0.1:18080")
}

// wantEcho checks that something at addr sends back what it gets.
func wantEcho(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	conn.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "hello" {
		t.Errorf("%s answers %q, %v", addr, got, err)
	}
}
