package probe

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/berth-run/berth/internal/httpget"
	"github.com/berth-run/berth/internal/lifecycle"
)

func realCheckers() *checkers {
	return &checkers{exec: newFakeExec(healthy), clients: httpget.NewClients()}
}

// ask makes one check with a handler against 127.0.0.1.
func ask(t *testing.T, h corev1.ProbeHandler, timeout time.Duration) verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	p := lifecycle.Probe{Spec: &corev1.Probe{ProbeHandler: h}, IP: "127.0.0.1", Container: "app"}
	return realCheckers().of(&corev1.Container{Name: "app"}, &p).check(ctx, timeout)
}

// portOf takes the port out of an address or URL.
func portOf(t *testing.T, address string) int32 {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// mute silences what a server says about clients that go away.
func mute(s *httptest.Server) { s.Config.ErrorLog = log.New(io.Discard, "", 0) }

func TestHTTPChecks(t *testing.T) {
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "all well") })
	mux.HandleFunc("/399", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(399) })
	mux.HandleFunc("/400", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400); fmt.Fprint(w, "secret") })
	mux.HandleFunc("/503", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	mux.Handle("/redirect", http.RedirectHandler("/ok", http.StatusMovedPermanently))
	mux.Handle("/to-503", http.RedirectHandler("/503", http.StatusFound))
	mux.Handle("/away", http.RedirectHandler("http://example.invalid/", http.StatusFound))
	mux.HandleFunc("/huge", func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 64<<10)
		for range 1 << 14 { // 1 GiB, if somebody reads it
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/hang", func(http.ResponseWriter, *http.Request) { <-release })
	mux.HandleFunc("/half", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half")
		_ = http.NewResponseController(w).Flush()
		<-release
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "half")
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host, " ", r.UserAgent(), " ", r.Header.Get("Accept"), " ", r.Header["X"])
	})
	plain, secure := httptest.NewUnstartedServer(mux), httptest.NewUnstartedServer(mux)
	mute(plain)
	mute(secure)
	plain.Start()
	secure.StartTLS()
	defer plain.Close()
	defer secure.Close()
	defer close(release)

	const second = time.Second
	for _, c := range []struct {
		name, path string
		timeout    time.Duration
		want       verdict // output: a part of it
	}{
		{"200 is success", "/ok", second, passed("all well")},
		{"399 is success with a warning", "/399", second, verdict{ok: true, warning: true}},
		{"400 is failure, without the body", "/400", second, failed("HTTP probe failed with statuscode: 400")},
		{"503 is failure", "/503", second, failed("HTTP probe failed with statuscode: 503")},
		{"a redirect is followed", "/redirect", second, passed("all well")},
		{"a redirect to failure fails", "/to-503", second, failed("statuscode: 503")},
		{"a redirect away warns", "/away", second, verdict{ok: true, warning: true, output: "Probe terminated redirects"}},
		{"a huge body is success", "/huge", second, passed("")},
		{"no answer is failure", "/hang", second / 10, failed("context deadline exceeded (no answer within 100ms)")},
		{"half a body in time is failure", "/half", second / 10, failed("cannot read the body after status 200: context deadline exceeded")},
		{"a short body is failure", "/short", second, failed("cannot read the body after status 200: unexpected EOF")},
	} {
		for scheme, server := range map[corev1.URIScheme]*httptest.Server{"HTTP": plain, "HTTPS": secure} {
			t.Run(c.name+" over "+string(scheme), func(t *testing.T) {
				got := ask(t, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
					Path: c.path, Port: intstr.FromInt32(portOf(t, server.URL)), Scheme: scheme,
				}}, c.timeout)
				output := got.output
				got.output = c.want.output
				if got != c.want || !strings.Contains(output, c.want.output) {
					t.Errorf("got %+v %q, want %+v", got, output, c.want)
				}
			})
		}
	}
	t.Run("headers", func(t *testing.T) {
		got := ask(t, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/headers", Port: intstr.FromInt32(portOf(t, plain.URL)),
			HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "shop.example"}, {Name: "X", Value: "1"}, {Name: "x", Value: "2"}},
		}}, second)
		if want := "shop.example kube-probe/1.37 */* [1 2]"; got.output != want {
			t.Errorf("got %q, want %q", got.output, want)
		}
	})
	t.Run("refused", func(t *testing.T) {
		got := ask(t, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(closedPort(t))}}, second)
		if got.ok || got.void || !strings.Contains(got.output, "connection refused") {
			t.Errorf("got %+v", got)
		}
	})
}

func TestHTTPCheckSpeaksH2CWhenAsked(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	h2, h1 := corev1.HTTPProtocolHTTP2, corev1.HTTPProtocolHTTP1
	for want, protocol := range map[string]*corev1.HTTPProtocol{"HTTP/2.0": &h2, "HTTP/1.1": &h1} {
		got := ask(t, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/", Port: intstr.FromInt32(portOf(t, s.URL)), Protocol: protocol,
		}}, time.Second)
		if got != passed(want) {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
}

// closedPort is a port that nobody listens at.
func closedPort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return portOf(t, l.Addr().String())
}

func TestTCPChecks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tcp := func(port int32) corev1.ProbeHandler {
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}}
	}
	if got := ask(t, tcp(portOf(t, l.Addr().String())), time.Second); got != passed("") {
		t.Errorf("open port: %+v", got)
	}
	if got := ask(t, tcp(closedPort(t)), time.Second); got.ok || got.void || !strings.Contains(got.output, "connection refused") {
		t.Errorf("closed port: %+v", got)
	}
	host := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(portOf(t, l.Addr().String())), Host: "localhost"}}
	if got := ask(t, host, time.Second); got != passed("") {
		t.Errorf("by host: %+v", got)
	}
	// A full backlog drops the handshake: no answer at all.
	full := deafListener(t)
	if got := ask(t, tcp(full), 100*time.Millisecond); got.ok || got.void || !strings.Contains(got.output, "no answer within 100ms") {
		t.Errorf("deaf server: %+v", got)
	}
}

// deafListener listens and has no room for another connection.
func deafListener(t *testing.T) int32 {
	t.Helper()
	cfg := net.ListenConfig{}
	l, err := cfg.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	setBacklog(t, l.(*net.TCPListener), 0)
	for range 16 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		cancel()
		if err != nil {
			return portOf(t, l.Addr().String())
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("the kernel's backlog has no end")
	return 0
}

// healthServer is a real gRPC server with the health service.
func healthServer(t *testing.T, address string, opts ...grpc.ServerOption) (*health.Server, int32) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(opts...)
	h := health.NewServer()
	healthpb.RegisterHealthServer(s, h)
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); served.Wait() })
	return h, portOf(t, l.Addr().String())
}

func grpcHandler(port int32, service string, mode corev1.GRPCProbeMode) corev1.ProbeHandler {
	action := &corev1.GRPCAction{Port: port}
	if service != "" {
		action.Service = &service
	}
	if mode != "" {
		action.Mode = &mode
	}
	return corev1.ProbeHandler{GRPC: action}
}

func TestGRPCChecks(t *testing.T) {
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	plain, plainPort := healthServer(t, "127.0.0.1:0")
	tlsHealth, tlsPort := healthServer(t, "127.0.0.1:0", grpc.Creds(credentials.NewServerTLSFromCert(&certificate.TLS.Certificates[0])))
	for _, h := range []*health.Server{plain, tlsHealth} {
		h.SetServingStatus("sick", healthpb.HealthCheckResponse_NOT_SERVING)
	}
	release := make(chan struct{})
	defer close(release)
	_, slowPort := healthServer(t, "127.0.0.1:0", grpc.UnaryInterceptor(
		func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil, ctx.Err()
		}))
	bare := grpc.NewServer()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = bare.Serve(l) })
	defer served.Wait()
	defer bare.Stop()
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.Config.Protocols = new(http.Protocols)
	web.Config.Protocols.SetUnencryptedHTTP2(true)
	web.Start()
	defer web.Close()

	const second = time.Second
	for _, c := range []struct {
		name    string
		handler corev1.ProbeHandler
		timeout time.Duration
		ok      bool
		output  string
	}{
		{"serving", grpcHandler(plainPort, "", ""), second, true, "service healthy"},
		{"plain text by name", grpcHandler(plainPort, "", corev1.GRPCProbeModePlaintext), second, true, "service healthy"},
		{"not serving", grpcHandler(plainPort, "sick", ""), second, false, `service unhealthy (responded with "NOT_SERVING")`},
		{"unknown service", grpcHandler(plainPort, "nobody", ""), second, false, "grpc-status 5: unknown service"},
		{"serving over TLS", grpcHandler(tlsPort, "", corev1.GRPCProbeModeTLS), second, true, "service healthy"},
		{"not serving over TLS", grpcHandler(tlsPort, "sick", corev1.GRPCProbeModeTLS), second, false, "NOT_SERVING"},
		{"TLS where plain text is spoken", grpcHandler(plainPort, "", corev1.GRPCProbeModeTLS), second, false, "failed to connect service"},
		{"plain text where TLS is spoken", grpcHandler(tlsPort, "", ""), second, false, "error: "},
		{"no health service", grpcHandler(portOf(t, l.Addr().String()), "", ""), second, false, "does not implement the grpc health protocol"},
		{"no gRPC", grpcHandler(portOf(t, web.URL), "", ""), second, false, "HTTP status 404"},
		{"no answer", grpcHandler(slowPort, "", ""), second / 10, false, "timeout: "},
		{"nobody there", grpcHandler(closedPort(t), "", ""), second / 10, false, "timeout: failed to connect service"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ask(t, c.handler, c.timeout)
			if got.ok != c.ok || got.void || !strings.Contains(got.output, c.output) {
				t.Errorf("got %+v, want %t %q", got, c.ok, c.output)
			}
		})
	}
}

// A server that comes up within the time-out is found by the same check.
func TestGRPCCheckWaitsForTheServer(t *testing.T) {
	port := closedPort(t)
	verdicts := make(chan verdict, 1)
	go func() { verdicts <- ask(t, grpcHandler(port, "", ""), 10*time.Second) }()
	time.Sleep(20 * time.Millisecond) // likely, not surely, after the first attempt
	healthServer(t, fmt.Sprintf("127.0.0.1:%d", port))
	if got := <-verdicts; !got.ok {
		t.Errorf("got %+v", got)
	}
}

func TestHealthStatusOfOddAnswers(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"serving":             {"\x00\x00\x00\x00\x02\x08\x01", "SERVING"},
		"the default":         {"\x00\x00\x00\x00\x00", "UNKNOWN"},
		"a field from later":  {"\x00\x00\x00\x00\x05\x12\x01x\x08\x01", "SERVING"},
		"a status from later": {"\x00\x00\x00\x00\x02\x08\x09", "9"},
		"nothing":             {"", "the answer is no single uncompressed message"},
		"compressed":          {"\x01\x00\x00\x00\x02\x08\x01", "the answer is no single uncompressed message"},
		"cut off":             {"\x00\x00\x00\x00\x02\x08", "the answer is no single uncompressed message"},
		"garbage":             {"\x00\x00\x00\x00\x02\xff\xff", "cannot read the answer: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := healthStatus([]byte(c.body))
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	container := &corev1.Container{Env: []corev1.EnvVar{
		{Name: "PORT", Value: "80"}, {Name: "PORT", Value: "8080"}, {Name: "FROM", ValueFrom: &corev1.EnvVarSource{}},
	}}
	for in, want := range map[string]string{
		"":              "",
		"plain":         "plain",
		"$(PORT)":       "8080",
		"a$(PORT)b$$c":  "a8080b$c",
		"$$(PORT)":      "$(PORT)",
		"$(NOBODY)":     "$(NOBODY)",
		"$(FROM)":       "",
		"$(PORT":        "$(PORT",
		"$PORT $":       "$PORT $",
		"$($(PORT))":    "$($(PORT))",
		"$(PORT)$(PORT": "8080$(PORT",
	} {
		if got := expand(in, container); got != want {
			t.Errorf("expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for in, want := range map[string]string{
		"short":                   "short",
		strings.Repeat("x", 20):   "xxxxxxx…",
		"ééééééééé":               "ééé…",
		"bad \xff":                "bad �",
		strings.Repeat("ab\n", 9): "ab\nab\na…",
	} {
		if got := shorten(in, 10); got != want {
			t.Errorf("shorten(%q) = %q, want %q", in, got, want)
		}
	}
}

// Without a file descriptor left, no check says anything about its target.
func TestOwnLackIsNotTheTargetsFault(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := portOf(t, l.Addr().String())
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	for name, h := range map[string]corev1.ProbeHandler{
		"http":  {HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(port)}},
		"https": {HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(port), Scheme: "HTTPS"}},
		"tcp":   {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		"grpc":  grpcHandler(port, "", ""),
	} {
		if got := ask(t, h, time.Second); !got.void || !strings.Contains(got.output, "too many open files") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// fds counts the open files of this process.
func fds(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// A few hundred real checks of all kinds against servers good and bad, half of
// them cut off by the end: no descriptor stays open. goleak looks for goroutines.
func TestNothingLeaks(t *testing.T) {
	before := fds(t)
	func() {
		release := make(chan struct{})
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
		mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		plain, secure := httptest.NewUnstartedServer(mux), httptest.NewUnstartedServer(mux)
		mute(plain)
		mute(secure)
		plain.Start()
		secure.StartTLS()
		defer plain.Close()
		defer secure.Close()
		defer close(release)

		results := make(chan Result, 1000)
		m, err := New(Config{
			Exec: newFakeExec(healthy), Changed: func(r Result) { results <- r },
			Timing: func(*corev1.Pod, string, lifecycle.ProbeKind, *corev1.Probe) Timing {
				return Timing{Period: 20 * time.Millisecond, Timeout: 10 * time.Second}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		httpOf := func(s *httptest.Server, scheme corev1.URIScheme, path string) corev1.ProbeHandler {
			return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(portOf(t, s.URL)), Scheme: scheme}}
		}
		const good = 3
		handlers := []corev1.ProbeHandler{
			httpOf(plain, "HTTP", "/"), httpOf(secure, "HTTPS", "/"),
			{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(portOf(t, plain.URL))}},
			httpOf(plain, "HTTP", "/hang"), httpOf(secure, "HTTPS", "/hang"),
			grpcHandler(closedPort(t), "", ""),
		}
		for i, h := range handlers {
			for n := range 10 {
				p := execProbe(fmt.Sprint("c", i, "-", n), lifecycle.ReadinessProbe)
				p.Spec.ProbeHandler = h
				b := podOf(fmt.Sprint("pod", i, "-", n))
				m.Set(b, []lifecycle.Probe{p})
			}
		}
		for range good * 10 {
			if r := <-results; r.Outcome != lifecycle.Success {
				t.Errorf("%+v", r)
			}
		}
		time.Sleep(200 * time.Millisecond) // some more rounds
		cancel()
		running.Wait()
	}()
	// The servers' own ends close a moment later.
	deadline := time.Now().Add(10 * time.Second)
	for fds(t) > before+2 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if after := fds(t); after > before+2 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
