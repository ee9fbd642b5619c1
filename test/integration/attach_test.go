package integration

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // client-go still takes this one
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-run/berth/internal/nodeapi"
	"github.com/berth-run/berth/internal/socket"
)

// serveAPI serves the node's API on a socket and returns what dials it.
func serveAPI(t *testing.T, n *node) func(ctx context.Context, network, address string) (net.Conn, error) {
	t.Helper()
	s, err := nodeapi.New(nodeapi.Config{Agent: n.driver.(*inProcess).agent, Leave: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the API ended with %v", err)
		}
	})
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}

// attach joins the streams of a container's first process until they end.
func attach(ctx context.Context, t *testing.T, n *node, pod string, o remotecommand.StreamOptions) error {
	t.Helper()
	query := url.Values{}
	for name, wanted := range map[string]bool{"input": o.Stdin != nil, "output": o.Stdout != nil, "error": o.Stderr != nil, "tty": o.Tty} {
		if wanted {
			query.Set(name, "true")
		}
	}
	transport, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: &http.Transport{DialContext: serveAPI(t, n)}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := remotecommand.NewSPDYExecutorForTransports(transport, transport, http.MethodPost,
		&url.URL{Scheme: "http", Host: "node", Path: "/attach/default/" + pod + "/app", RawQuery: query.Encode()})
	if err != nil {
		t.Fatal(err)
	}
	return e.StreamWithContext(ctx, o)
}

// Who attaches writes to the container's standard input and reads what it
// answers; its end, with stdinOnce, is the end of the input.
func TestAttachReachesTheFirstProcess(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	p := n.run(t, onePod("attach", "args: [cat]\nstdin: true\nstdinOnce: true", "restartPolicy: Never"))
	p.id(t, "app")
	in, typed := io.Pipe()
	out, shown := io.Pipe()
	attached := make(chan error, 1)
	go func() {
		err := attach(t.Context(), t, n, "attach", remotecommand.StreamOptions{Stdin: in, Stdout: shown, Stderr: io.Discard})
		shown.CloseWithError(err)
		attached <- err
	}()
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(typed, line); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(line))
		if _, err := io.ReadFull(out, got); err != nil || string(got) != line {
			t.Fatalf("the container answers %q, %v, want %q", got, err, line)
		}
	}
	typed.Close()
	if err := <-attached; err != nil {
		t.Errorf("attach ended with %v", err)
	}
	p.succeeded(t)
	if got := p.logs(t, "app"); got != "one\ntwo\n" {
		t.Errorf("the log holds %q", got)
	}
	p.stop(t)
}

// Several may watch a container; one that leaves does not end it.
func TestAttachedLeaveWithoutEndingTheContainer(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	p := n.run(t, onePod("attach-many", "args: [print-lines, \"0\", --rate, \"50\"]"))
	p.id(t, "app")
	var under sync.WaitGroup
	for range 2 {
		ctx, leave := context.WithCancel(t.Context())
		got := &watcher{enough: leave}
		under.Go(func() {
			err := attach(ctx, t, n, "attach-many", remotecommand.StreamOptions{Stdout: got, Stderr: io.Discard})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("attach ended with %v after %q", err, got.text)
			}
		})
	}
	under.Wait()
	if cs := container(p.status(), "app"); cs == nil || cs.State.Running == nil || cs.RestartCount != 0 {
		t.Errorf("the container is %+v", cs)
	}
	p.stop(t)
}

// watcher reads until it has seen enough.
type watcher struct {
	text   []byte
	enough func()
}

func (w *watcher) Write(p []byte) (int, error) {
	if w.text = append(w.text, p...); len(w.text) >= 200 {
		w.enough()
	}
	return len(p), nil
}

func TestAttachToWhatIsNotThere(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	if err := attach(t.Context(), t, n, "nobody", remotecommand.StreamOptions{Stdout: io.Discard}); err == nil {
		t.Error("attached to a pod that is not there")
	}
	p := n.run(t, onePod("attach-ended", "args: [\"true\"]", "restartPolicy: Never"))
	p.succeeded(t)
	if err := attach(t.Context(), t, n, "attach-ended", remotecommand.StreamOptions{Stdout: io.Discard}); err == nil {
		t.Error("attached to a container that has ended")
	}
	p.stop(t)
}
