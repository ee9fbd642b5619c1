package criserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	critest "k8s.io/cri-api/pkg/apis/testing"
	utilexec "k8s.io/utils/exec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend is upstream's fake with a few answers of the test's own.
type backend struct {
	*critest.FakeRuntimeService
	stop   func(ctx context.Context, id string) error
	exec   func(ctx context.Context) ([]byte, []byte, error)
	list   []*runtimeapi.Container
	events chan *runtimeapi.ContainerEventResponse
}

func (b *backend) StopPodSandbox(ctx context.Context, id string) error { return b.stop(ctx, id) }

func (b *backend) ExecSync(ctx context.Context, _ string, _ []string, _ time.Duration) ([]byte, []byte, error) {
	return b.exec(ctx)
}

func (b *backend) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return b.list, nil
}

func (b *backend) GetContainerEvents(ctx context.Context, out chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	established(nil)
	for {
		select {
		case e := <-b.events:
			select {
			case out <- e:
			case <-ctx.Done():
				return ctx.Err()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// serve serves b at a socket; end stops the server and gives what Serve returned.
func serve(t *testing.T, b *backend) (client runtimeapi.RuntimeServiceClient, end func() error) {
	t.Helper()
	b.FakeRuntimeService = critest.NewFakeRuntimeService()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := Listen(t.Context(), "unix://"+socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- New(Config{Runtime: b, Images: critest.NewFakeImageService()}).Serve(ctx, l)
	}()
	end = func() error { cancel(); return <-ended }
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); cancel() })
	return runtimeapi.NewRuntimeServiceClient(conn), end
}

func TestErrorsKeepTheirCodeAndText(t *testing.T) {
	b := &backend{}
	client, end := serve(t, b)
	for name, c := range map[string]struct {
		err  error
		code codes.Code
		text string
	}{
		"a code deep inside":    {fmt.Errorf("cannot stop x: %w", status.Error(codes.NotFound, "no x")), codes.NotFound, "cannot stop x: "},
		"containerd's error":    {fmt.Errorf("cannot stop x: %w", errdefs.ErrAlreadyExists), codes.AlreadyExists, "cannot stop x: already exists"},
		"the end of a context":  {fmt.Errorf("cannot stop x: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "cannot stop x: context deadline exceeded"},
		"a cancelled call":      {context.Canceled, codes.Canceled, "context canceled"},
		"anything else":         {errors.New("disk full"), codes.Unknown, "disk full"},
		"several, one has code": {errors.Join(errors.New("disk full"), status.Error(codes.Unavailable, "no shim")), codes.Unavailable, "disk full"},
	} {
		b.stop = func(context.Context, string) error { return c.err }
		_, err := client.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: "x"})
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.text) {
			t.Errorf("%s: got %v, want code %s and %q", name, err, c.code, c.text)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestExitCodeOfACommandIsAnAnswer(t *testing.T) {
	b := &backend{exec: func(context.Context) ([]byte, []byte, error) {
		return []byte("out"), []byte("err"), fmt.Errorf("false: %w", utilexec.CodeExitError{Err: errors.New("exit 3"), Code: 3})
	}}
	client, end := serve(t, b)
	r, err := client.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: "c", Cmd: []string{"false"}})
	if err != nil || r.GetExitCode() != 3 || string(r.GetStdout()) != "out" || string(r.GetStderr()) != "err" {
		t.Errorf("got %v, %v", r, err)
	}
	if _, err := client.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: "c", Timeout: -1}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a negative time-out gives %v", err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// A list that is larger than a message may be comes whole, in order, in pieces.
func TestLongListsAreStreamed(t *testing.T) {
	b := &backend{}
	for i := range 400 {
		b.list = append(b.list, &runtimeapi.Container{
			Id: fmt.Sprint(i), Annotations: map[string]string{"long": strings.Repeat("x", 50<<10)},
		})
	}
	b.list = append(b.list, &runtimeapi.Container{Id: "400", Annotations: map[string]string{"long": strings.Repeat("x", 2*chunkBytes)}})
	client, end := serve(t, b)
	stream, err := client.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(r.GetContainers()) == 0 {
			t.Error("a message holds nothing")
		}
		for _, c := range r.GetContainers() {
			if c.GetId() != fmt.Sprint(next) {
				t.Fatalf("got container %s, want %d", c.GetId(), next)
			}
			next++
		}
	}
	if next != len(b.list) {
		t.Errorf("got %d containers, want %d", next, len(b.list))
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// Who has the header of the stream misses no event; the end of the server ends
// the stream with a code that makes callers come again.
func TestEvents(t *testing.T) {
	b := &backend{events: make(chan *runtimeapi.ContainerEventResponse, 1)}
	client, end := serve(t, b)
	stream, err := client.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	b.events <- &runtimeapi.ContainerEventResponse{ContainerId: "c"}
	if e, err := stream.Recv(); err != nil || e.GetContainerId() != "c" {
		t.Errorf("got %v, %v", e, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends with %v", err)
	}
}

// A call under way when the server ends is answered.
func TestEndWaitsForCalls(t *testing.T) {
	called, goOn := make(chan struct{}), make(chan struct{})
	b := &backend{stop: func(ctx context.Context, _ string) error {
		close(called)
		<-goOn
		return ctx.Err()
	}}
	client, end := serve(t, b)
	answer := make(chan error, 1)
	go func() {
		_, err := client.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{})
		answer <- err
	}()
	<-called
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	close(goOn)
	if err := <-answer; err != nil {
		t.Errorf("the call ends with %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "cri.sock")
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v (%v), want 0600", info.Mode(), err)
	}
	if _, err := Listen(t.Context(), "unix://"+path); !errors.Is(err, ErrInUse) {
		t.Errorf("a second server gets %v", err)
	}
	l.Close()
	left, err := net.Listen("unix", path) // as a killed process leaves it
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	if l, err = Listen(t.Context(), "unix://"+path); err != nil {
		t.Errorf("what a killed process left is in the way: %v", err)
	} else {
		l.Close()
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for endpoint, want := range map[string]string{
		"relative.sock":     "want unix:///an/absolute/path",
		"tcp://127.0.0.1:1": "want unix:///an/absolute/path",
		"unix://" + file:    "something that is no socket",
		"/" + fmt.Sprint(1<<62) + strings.Repeat("/long", 30): "at most 107 bytes",
	} {
		if _, err := Listen(t.Context(), endpoint); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", endpoint, err, want)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file was touched: %q, %v", b, err)
	}
}
