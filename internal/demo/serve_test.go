package demo

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// address waits until the server says where it listens.
func (r *running) address() string {
	r.t.Helper()
	fields := strings.Fields(r.line(" on "))
	for i, f := range fields {
		if f == "on" {
			_, port, _ := strings.Cut(strings.TrimPrefix(fields[i+1], "[::]"), ":")
			return "127.0.0.1:" + port
		}
	}
	r.t.Fatal("no address")
	return ""
}

func ask(t *testing.T, client *http.Client, method, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestServe(t *testing.T) {
	t.Setenv("DEMO_VARIABLE", "value")
	base := "http://" + startDemo(t, "serve", "--port", "0").address()
	steps := []struct {
		method, path string
		code         int
		says         string
	}{
		{"GET", "/", 200, "hello from"},
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/readyz", 200, "ok"},
		{"POST", "/readyz?ready=false", 200, "ready=false"},
		{"GET", "/readyz", 503, "not ready"},
		{"GET", "/livez", 200, "ok"},
		{"POST", "/readyz?ready=true", 200, "ready=true"},
		{"GET", "/readyz", 200, "ok"},
		{"POST", "/livez?live=false", 200, "live=false"},
		{"GET", "/livez", 503, "not live"},
		{"GET", "/healthz", 503, "not live"},
		{"POST", "/livez", 400, "true or false"},
		{"POST", "/livez?live=true", 200, ""},
		{"GET", "/env", 200, "DEMO_VARIABLE=value\n"},
		{"GET", "/env?name=DEMO_VARIABLE", 200, "value\n"},
		{"GET", "/env?name=NONE", 404, ""},
		{"GET", "/hostname", 200, ""},
		{"GET", "/headers", 200, "User-Agent: Go-http-client/1.1"},
		{"GET", "/delay?ms=1", 200, "ok"},
		{"GET", "/delay?ms=x", 400, "from 0"},
		{"GET", "/redirect", 200, "ok"},
		{"GET", "/redirect?times=3&to=/hostname", 200, ""},
		{"GET", "/redirect?times=30", 0, ""},
		{"GET", "/status?code=418", 418, "teapot"},
		{"GET", "/status?code=100", 400, ""},
		{"GET", "/body?bytes=3000", 200, "xxx"},
		{"GET", "/nothing", 404, ""},
	}
	for _, s := range steps {
		if s.code == 0 {
			code, _, errOut := inProcess("", "http-get", base+s.path)
			if code != 1 || !strings.Contains(errOut, "redirects") {
				t.Errorf("%s: %d %q", s.path, code, errOut)
			}
			continue
		}
		code, body := ask(t, http.DefaultClient, s.method, base+s.path)
		if code != s.code || !strings.Contains(body, s.says) {
			t.Errorf("%s %s: %d %q, want %d %q", s.method, s.path, code, body, s.code, s.says)
		}
	}
	if _, body := ask(t, http.DefaultClient, "GET", base+"/body?bytes=3000"); len(body) != 3000 {
		t.Errorf("body has %d bytes", len(body))
	}
}

func TestServeEndsWithTheCodeAskedFor(t *testing.T) {
	r := startDemo(t, "serve", "--port", "0")
	ask(t, http.DefaultClient, "GET", "http://"+r.address()+"/exit?code=9")
	if got := r.ended(); got != 9 {
		t.Errorf("exit code %d", got)
	}
}

func TestServeSpeaksHTTP2AndTLS(t *testing.T) {
	plain, secure := startDemo(t, "serve", "--port", "0").address(), startDemo(t, "serve", "--port", "0", "--tls").address()
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	_, body := ask(t, &http.Client{Transport: &http.Transport{Protocols: &h2c}}, "GET", "http://"+plain+"/")
	if !strings.Contains(body, "HTTP/2.0") {
		t.Errorf("h2c: %q", body)
	}
	trusting := &tls.Config{InsecureSkipVerify: true}
	_, body = ask(t, &http.Client{Transport: &http.Transport{TLSClientConfig: trusting, ForceAttemptHTTP2: true}}, "GET", "https://"+secure+"/")
	if !strings.Contains(body, "HTTP/2.0") {
		t.Errorf("https: %q", body)
	}
	if code, out, _ := inProcess("", "http-get", "--insecure", "https://"+secure+"/healthz"); code != 0 || out != "ok\n" {
		t.Errorf("http-get: %d %q", code, out)
	}
	if code, _, errOut := inProcess("", "http-get", "https://"+secure+"/healthz"); code != 1 || !strings.Contains(errOut, "certificate") {
		t.Errorf("http-get without trust: %d %q", code, errOut)
	}
	if code, out, errOut := inProcess("", "http-get", "http://"+plain+"/status?code=500"); code != 1 || out == "" || !strings.Contains(errOut, "500") {
		t.Errorf("http-get of an error: %d %q %q", code, out, errOut)
	}
}

// The real gRPC client understands our hand-made server.
func TestGRPCHealth(t *testing.T) {
	cases := map[string]struct {
		args []string
		tls  bool
	}{
		"plain": {[]string{"grpc-health", "--port", "0", "--service", "shop"}, false},
		"TLS":   {[]string{"grpc-health", "--port", "0", "--service", "shop", "--tls"}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			address := startDemo(t, c.args...).address()
			scheme, creds := "http://", insecure.NewCredentials()
			trusting := &tls.Config{InsecureSkipVerify: true}
			if c.tls {
				scheme, creds = "https://", credentials.NewTLS(trusting)
			}
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			client := healthpb.NewHealthClient(conn)
			check := func(service string) (healthpb.HealthCheckResponse_ServingStatus, codes.Code) {
				answer, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
				return answer.GetStatus(), status.Code(err)
			}
			for _, service := range []string{"", "shop"} {
				if got, code := check(service); got != healthpb.HealthCheckResponse_SERVING || code != codes.OK {
					t.Errorf("%q: %v %v", service, got, code)
				}
			}
			if _, code := check("other"); code != codes.NotFound {
				t.Errorf("unknown service: %v", code)
			}
			http1 := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}}
			ask(t, http1, "POST", scheme+address+"/serving?status=not_serving")
			if got, code := check(""); got != healthpb.HealthCheckResponse_NOT_SERVING || code != codes.OK {
				t.Errorf("after the change: %v %v", got, code)
			}
			stream, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("watch: %v", err)
			}
		})
	}
}

func TestHealthFollowsReadiness(t *testing.T) {
	address := startDemo(t, "serve", "--port", "0").address()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{1, 2} {
		got, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil || got.GetStatus() != want {
			t.Errorf("%v %v, want %v", got, err, want)
		}
		ask(t, http.DefaultClient, "POST", "http://"+address+"/readyz?ready=false")
	}
}

func TestEchoServers(t *testing.T) {
	for network, args := range map[string][]string{"tcp": {"tcp-listen", "--port", "0"}, "udp": {"udp-echo", "--port", "0"}} {
		fields := strings.Fields(startDemo(t, args...).line("listening"))
		address := strings.Replace(fields[len(fields)-1], "[::]", "127.0.0.1", 1)
		if code, out, errOut := inProcess("", network+"-send", address, "hello", "there"); code != 0 || out != "hello there\n" {
			t.Errorf("%s: %d %q %q", network, code, out, errOut)
		}
	}
	if code, _, _ := inProcess("", "tcp-send", "127.0.0.1:1"); code != 1 {
		t.Errorf("a closed port: %d", code)
	}
}

func FuzzReadHealthRequest(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 6, 10, 4, 's', 'h', 'o', 'p'})
	f.Add([]byte{0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, raw []byte) {
		_, _ = readHealthRequest(strings.NewReader(string(raw))) // must not panic
	})
}
