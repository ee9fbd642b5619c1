package httpget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRequestFollowsTheHandler(t *testing.T) {
	container := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}}
	header := func(kv ...string) (h []corev1.HTTPHeader) {
		for i := 0; i < len(kv); i += 2 {
			h = append(h, corev1.HTTPHeader{Name: kv[i], Value: kv[i+1]})
		}
		return h
	}
	for name, c := range map[string]struct {
		action corev1.HTTPGetAction
		ip     string
		want   string // URL, Host, then the headers; or the error
	}{
		"port by number":                  {corev1.HTTPGetAction{Port: intstr.FromInt32(80), Path: "/x?y=1"}, "10.0.0.1", "http://10.0.0.1:80/x?y=1 host= Accept=[*/*] User-Agent=[kube-probe/1.37]"},
		"port by name":                    {corev1.HTTPGetAction{Port: intstr.FromString("web")}, "10.0.0.1", "http://10.0.0.1:8080 host= Accept=[*/*] User-Agent=[kube-probe/1.37]"},
		"digits in a string":              {corev1.HTTPGetAction{Port: intstr.FromString("81")}, "10.0.0.1", "http://10.0.0.1:81 host= Accept=[*/*] User-Agent=[kube-probe/1.37]"},
		"unknown name":                    {corev1.HTTPGetAction{Port: intstr.FromString("nope")}, "10.0.0.1", `cannot find port "nope" among the container's ports`},
		"port out of range":               {corev1.HTTPGetAction{Port: intstr.FromInt32(70000)}, "10.0.0.1", "port 70000 is not a port; use 1–65535"},
		"IPv6 address":                    {corev1.HTTPGetAction{Port: intstr.FromInt32(80), Path: "/"}, "fd00::1", "http://[fd00::1]:80/ host= Accept=[*/*] User-Agent=[kube-probe/1.37]"},
		"host replaces the address":       {corev1.HTTPGetAction{Port: intstr.FromInt32(80), Host: "example.com", Scheme: "HTTPS"}, "10.0.0.1", "https://example.com:80 host= Accept=[*/*] User-Agent=[kube-probe/1.37]"},
		"no address":                      {corev1.HTTPGetAction{Port: intstr.FromInt32(80), Path: "/"}, "", `cannot build request for path "/": the pod has no address yet`},
		"headers replace ours and repeat": {corev1.HTTPGetAction{Port: intstr.FromInt32(80), HTTPHeaders: header("user-agent", "me", "X", "1", "X", "2", "Host", "v.example")}, "10.0.0.1", "http://10.0.0.1:80 host=v.example Accept=[*/*] Host=[v.example] User-Agent=[me] X=[1 2]"},
		"an empty Accept removes it":      {corev1.HTTPGetAction{Port: intstr.FromInt32(80), HTTPHeaders: header("Accept", "")}, "10.0.0.1", "http://10.0.0.1:80 host= User-Agent=[kube-probe/1.37]"},
		"a path that is no URL":           {corev1.HTTPGetAction{Port: intstr.FromInt32(80), Path: "/%zz"}, "10.0.0.1", "http://10.0.0.1:80/%25zz host= Accept=[*/*] User-Agent=[kube-probe/1.37]"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := Request(&c.action, container, c.ip, "probe")
			var got string
			if err != nil {
				got = err.Error()
			} else {
				got = fmt.Sprintf("%s host=%s", req.URL, req.Host)
				for _, k := range []string{"Accept", "Host", "User-Agent", "X"} {
					if v, ok := req.Header[k]; ok {
						got += fmt.Sprintf(" %s=%v", k, v)
					}
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// get asks a server as a probe would and returns status, body and error.
func get(t *testing.T, client *http.Client, to string) (status int, body string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 10<<10))
	return resp.StatusCode, string(b), err
}

// answer serves one raw answer to each connection, after reading the request.
func answer(t *testing.T, raw string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, raw)
			c.Close()
		}
	}()
	return l.Addr().String()
}

func TestRawAnswers(t *testing.T) {
	clients := NewClients()
	long := strings.Repeat("x: y\r\n", 100_000)
	for name, c := range map[string]struct {
		raw    string
		status int
		body   string
		err    string
	}{
		"content length":           {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", ""},
		"body up to the end":       {"HTTP/1.0 200 OK\r\n\r\nall of it", 200, "all of it", ""},
		"chunks":                   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, "ok", ""},
		"interim answers":          {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", 204, "", ""},
		"interim answers for ever": {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20), 0, "", "too many interim answers"},
		"no HTTP":                  {"SSH-2.0-OpenSSH_9.2\r\n", 0, "", "malformed HTTP"},
		"nothing":                  {"", 0, "", "EOF"},
		"a header without end":     {"HTTP/1.1 200 OK\r\n" + long, 0, "", "longer than 262144 bytes"},
		"a body that breaks off":   {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok", 200, "ok", "unexpected EOF"},
		"a trailer without end":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n2\r\nok\r\n0\r\n" + long, 200, "ok", "suspiciously long trailer"},
		"a redirect without place": {"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", 302, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, body, err := get(t, clients.HTTP1, "http://"+answer(t, c.raw)+"/")
			if status != c.status || body != c.body {
				t.Errorf("got %d %q, want %d %q", status, body, c.status, c.body)
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func TestRedirectsStayWithinTheHost(t *testing.T) {
	clients := NewClients()
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })
	mux.Handle("/here", http.RedirectHandler("/ok", http.StatusFound))
	mux.Handle("/away", http.RedirectHandler("http://example.invalid/", http.StatusFound))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	s := httptest.NewServer(mux)
	defer s.Close()
	secure := httptest.NewTLSServer(mux)
	defer secure.Close()
	mux.Handle("/secure", http.RedirectHandler(secure.URL+"/ok", http.StatusFound))

	if status, body, err := get(t, clients.HTTP1, s.URL+"/here"); status != 200 || body != "here" || err != nil {
		t.Errorf("same host: %d %q %v", status, body, err)
	}
	if status, body, err := get(t, clients.HTTP1, s.URL+"/secure"); status != 200 || body != "here" || err != nil {
		t.Errorf("same host over TLS: %d %q %v", status, body, err)
	}
	if status, _, err := get(t, clients.HTTP1, s.URL+"/away"); status != 302 || err != nil {
		t.Errorf("other host: %d %v", status, err)
	}
	if _, _, err := get(t, clients.HTTP1, s.URL+"/loop"); err == nil || !strings.Contains(err.Error(), "stopped after 10 redirects") {
		t.Errorf("loop: %v", err)
	}
}

func TestProtocols(t *testing.T) {
	clients := NewClients()
	proto := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	plain := httptest.NewServer(proto)
	defer plain.Close()
	h2c := httptest.NewUnstartedServer(proto)
	h2c.Config.Protocols = new(http.Protocols)
	h2c.Config.Protocols.SetUnencryptedHTTP2(true)
	h2c.Start()
	defer h2c.Close()
	secure := httptest.NewUnstartedServer(proto)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	for _, c := range []struct {
		name   string
		client *http.Client
		url    string
		want   string
	}{
		{"clear text", clients.HTTP1, plain.URL, "HTTP/1.1"},
		{"prior knowledge", clients.H2C, h2c.URL, "HTTP/2.0"},
		{"TLS lets the server choose", clients.HTTP1, secure.URL, "HTTP/2.0"},
		{"TLS with protocol HTTP2", clients.H2C, secure.URL, "HTTP/2.0"},
	} {
		if status, body, err := get(t, c.client, c.url); status != 200 || body != c.want || err != nil {
			t.Errorf("%s: %d %q %v, want %q", c.name, status, body, err, c.want)
		}
	}
	if _, _, err := get(t, clients.H2C, plain.URL); err == nil {
		t.Error("HTTP/2 asked of an HTTP/1.1 server succeeded")
	}
}

func TestTimeOutNamesItself(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			fmt.Fprint(w, "some")
			_ = http.NewResponseController(w).Flush()
		}
		<-hang
	}))
	defer s.Close()
	defer close(hang)
	for _, path := range []string{"/head", "/body"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := NewClients().HTTP1.Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Whoever closes first, nobody is left in TIME_WAIT, and the server never sees
// its connection broken.
func TestNoTimeWait(t *testing.T) {
	for name, start := range map[string]func(s *httptest.Server){
		"http": func(s *httptest.Server) { s.Start() },
		"h2c": func(s *httptest.Server) {
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Start()
		},
		"https":         func(s *httptest.Server) { s.StartTLS() },
		"https, HTTP/2": func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			var complaints lines
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
			s.Config.ErrorLog = log.New(&complaints, "", 0)
			start(s)
			defer s.Close()
			u, err := url.Parse(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			port, err := strconv.Atoi(u.Port())
			if err != nil {
				t.Fatal(err)
			}
			client := NewClients().HTTP1
			if name == "h2c" {
				client = NewClients().H2C
			}
			for range 100 {
				if status, _, err := get(t, client, s.URL); status != 200 || err != nil {
					t.Fatal(status, err)
				}
			}
			// Both may close at the same moment, over HTTP/2 in clear text in 3 of
			// 100 cases, else in less than 1 of 1,000.
			if n := timeWait(t, port); n > 20 {
				t.Errorf("%d of 100 connections stay in TIME_WAIT", n)
			}
			if text := complaints.String(); text != "" {
				t.Errorf("the server complains: %s", text)
			}
		})
	}
}

// A server that closes and one that doesn't both read a clean end after a bare
// connection.
func TestBareConnectionEndsCleanly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 50 {
		c, err := Dial(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		// Accepted only now, when all is over.
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := s.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("the server read %d bytes, %v", n, err)
		}
		s.Close()
	}
	if n := timeWait(t, l.Addr().(*net.TCPAddr).Port); n > 2 {
		t.Errorf("%d of 50 connections stay in TIME_WAIT", n)
	}
}

// lines collects a server's log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// timeWait counts sockets in TIME_WAIT with this port at either end.
func timeWait(t *testing.T, port int) (n int) {
	t.Helper()
	suffix := fmt.Sprintf(":%04X", port)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 3 && f[3] == "06" && (strings.HasSuffix(f[1], suffix) || strings.HasSuffix(f[2], suffix)) {
				n++
			}
		}
	}
	return n
}

func benchmark(b *testing.B, client *http.Client) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		if err != nil {
			b.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		cancel()
	}
}

// Both figures include the server's half, in the same process.
func BenchmarkOurs(b *testing.B) { benchmark(b, NewClients().HTTP1) }
func BenchmarkNetHTTP(b *testing.B) {
	benchmark(b, &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}})
}
