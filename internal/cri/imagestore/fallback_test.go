package imagestore

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// deafListener hangs up on connections that do not begin with an HTTP request.
type deafListener struct{ net.Listener }

func (l deafListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		r := bufio.NewReader(c)
		if first, err := r.Peek(1); err == nil && first[0] >= 'A' && first[0] <= 'Z' {
			return peeked{c, r}, nil
		}
		_, _ = r.Discard(r.Buffered()) // else the kernel resets the connection
		_ = c.Close()
	}
}

type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

func TestALoopbackRegistryMayHangUpOnTLS(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 100)
	server := &httptest.Server{
		Listener: deafListener{listener},
		Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- r.URL.Path
			http.NotFound(w, r)
		})},
	}
	server.Start()
	t.Cleanup(server.Close)
	s, err := Open(Config{Root: t.TempDir(), Snapshotter: nativeName, RetryDelay: time.Millisecond, Registries: RegistryConfig{DockerConfigDir: "-"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	_, err = s.Pull(t.Context(), listener.Addr().String()+"/app:v1", nil, nil)
	if !errors.Is(err, ErrMissing) {
		t.Errorf("got %v, want that the registry has no such image", err)
	}
	select {
	case path := <-asked:
		if !strings.HasPrefix(path, "/v2/app/") {
			t.Errorf("asked for %s", path)
		}
	default:
		t.Error("the registry was not asked by plain http")
	}
}
