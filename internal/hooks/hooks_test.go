package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/berth-run/berth/internal/lifecycle"
)

// quiet is the log of those who don't look at it.
var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type execFunc func(ctx context.Context, id string, command []string) ([]byte, int32, error)

func (f execFunc) Exec(ctx context.Context, id string, command []string) ([]byte, int32, error) {
	return f(ctx, id, command)
}

// hookOf is a postStart or preStop hook of container "app".
func hookOf(handler corev1.LifecycleHandler, preStop bool) Hook {
	h := Hook{
		Pod:         &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}},
		Container:   &corev1.Container{Name: "app", Lifecycle: &corev1.Lifecycle{}},
		ContainerID: "c1", IP: "127.0.0.1", Handler: &handler,
	}
	if preStop {
		h.Container.Lifecycle.PreStop = &handler
	} else {
		h.Container.Lifecycle.PostStart = &handler
	}
	return h
}

func wantFailed(t *testing.T, err error, reason, message string) {
	t.Helper()
	var failed *lifecycle.Failed
	if !errors.As(err, &failed) {
		t.Fatalf("got %v (%T), want a *lifecycle.Failed", err, err)
	}
	if failed.Reason != reason || !strings.Contains(failed.Message, message) {
		t.Errorf("got %s: %q, want %s: %q", failed.Reason, failed.Message, reason, message)
	}
}

func TestCommands(t *testing.T) {
	for name, c := range map[string]struct {
		output  string
		code    int32
		err     error
		message string // whole; empty: success
	}{
		"exit code 0 is success": {"fine", 0, nil, ""},
		// Events and statuses are read by many, and what a command writes may be a secret.
		"another is failure, without the output": {"password: hunter2\n", 3, nil, `postStart hook: command "/bin/setup --all" exited with code 3`},
		"one that can't be run":                  {"", 0, errors.New("no such file"), `postStart hook: cannot run command "/bin/setup --all": no such file`},
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
			r := New(execFunc(func(_ context.Context, id string, command []string) ([]byte, int32, error) {
				if id != "c1" || len(command) != 2 {
					t.Errorf("ran %q in %s", command, id)
				}
				return []byte(c.output), c.code, c.err
			}), log)
			err := r.Run(t.Context(), hookOf(corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/setup", "--all"}}}, false))
			if c.message == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantFailed(t, err, "PostStartHookError", c.message)
			if err.Error() != (&lifecycle.Failed{Reason: "PostStartHookError", Message: c.message}).Error() {
				t.Errorf("the error says more: %v", err)
			}
			if text := logged.String(); !strings.Contains(text, "level=DEBUG") || !strings.Contains(text, strings.TrimSpace(c.output)) {
				t.Errorf("the log has not the output: %s", text)
			}
		})
	}
}

func TestCutOff(t *testing.T) {
	hang := func(ctx context.Context, _ string, _ []string) ([]byte, int32, error) {
		<-ctx.Done()
		time.Sleep(time.Second) // until it is reaped
		return []byte("half done"), 137, nil
	}
	for name, handler := range map[string]corev1.LifecycleHandler{
		"exec":  {Exec: &corev1.ExecAction{Command: []string{"drain"}}},
		"sleep": {Sleep: &corev1.SleepAction{Seconds: 3600}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(execFunc(hang), quiet)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				wantFailed(t, r.Run(ctx, hookOf(handler, true)), "PreStopHookError", "cut off at the end of its time")
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("it took %s", took)
				}
				ctx, cancel = context.WithCancel(t.Context())
				go func() { time.Sleep(time.Second); cancel() }()
				wantFailed(t, r.Run(ctx, hookOf(handler, false)), "PostStartHookError", "no longer wanted")
			})
		})
	}
}

func TestSleepLastsAsLongAsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := New(nil, quiet).Run(t.Context(), hookOf(corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 7}}, true)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("slept %s", took)
		}
	})
}

func TestNoHandler(t *testing.T) {
	wantFailed(t, New(nil, quiet).Run(t.Context(), hookOf(corev1.LifecycleHandler{}, false)), "PostStartHookError", "use exec, httpGet or sleep")
}

func get(t *testing.T, url, path string, scheme corev1.URIScheme) corev1.LifecycleHandler {
	t.Helper()
	_, port, err := net.SplitHostPort(url[strings.Index(url, "//")+2:])
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: path, Port: intstr.FromInt(n), Scheme: scheme,
		HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "secret"}, {Name: "X", Value: "1"}},
	}}
}

func TestRequests(t *testing.T) {
	var seen []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, fmt.Sprintf("%s tls=%t auth=%q x=%s %s", r.URL.Path, r.TLS != nil, r.Header.Get("Authorization"), r.Header.Get("X"), r.UserAgent()))
		if r.URL.Path == "/500" {
			w.WriteHeader(500)
		}
	})
	plain, secure := httptest.NewUnstartedServer(handler), httptest.NewTLSServer(handler)
	plain.Config.ErrorLog = log.New(io.Discard, "", 0)
	plain.Start()
	defer plain.Close()
	defer secure.Close()
	for name, c := range map[string]struct {
		handler corev1.LifecycleHandler
		want    string
	}{
		"http":                              {get(t, plain.URL, "/start", "HTTP"), `/start tls=false auth="secret" x=1 kube-lifecycle/1.37`},
		"any status is success":             {get(t, plain.URL, "/500", ""), `/500 tls=false auth="secret" x=1 kube-lifecycle/1.37`},
		"https":                             {get(t, secure.URL, "/start", "HTTPS"), `/start tls=true auth="secret" x=1 kube-lifecycle/1.37`},
		"https falls back, without secrets": {get(t, plain.URL, "/start", "HTTPS"), `/start tls=false auth="" x=1 kube-lifecycle/1.37`},
	} {
		t.Run(name, func(t *testing.T) {
			seen = nil
			if err := New(nil, quiet).Run(t.Context(), hookOf(c.handler, false)); err != nil {
				t.Fatal(err)
			}
			if len(seen) != 1 || seen[0] != c.want {
				t.Errorf("the server saw %q, want %q", seen, c.want)
			}
		})
	}
	plain.Close()
	wantFailed(t, New(nil, quiet).Run(t.Context(), hookOf(get(t, plain.URL, "/start", "HTTP"), true)), "PreStopHookError", "connection refused")
	wantFailed(t, New(nil, quiet).Run(t.Context(), hookOf(get(t, plain.URL, "/start", "HTTPS"), true)), "PreStopHookError", "connection refused")
}

func TestRequestIsCutOff(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(arrived); <-release }))
	defer s.Close()
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	wantFailed(t, New(nil, quiet).Run(ctx, hookOf(get(t, s.URL, "/", "HTTP"), true)), "PreStopHookError", "no longer wanted")
}
