package imagestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/testutil/images"
)

// busyFront is in front of a registry and answers 429 until a moment that it
// tells, from the first request on that is for what target says.
type busyFront struct {
	*httptest.Server
	target string // part of the path
	after  string // Retry-After

	mu        sync.Mutex
	until     time.Time
	asked     int // requests answered 429
	impatient int // of them, after the first
}

func newBusyFront(t *testing.T, registry, target, after string, busy time.Duration) *busyFront {
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry})
	f := &busyFront{target: target, after: after}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, f.target) && f.refuses(busy) {
			w.Header().Set("Retry-After", f.after)
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"errors":[{"code":"TOOMANYREQUESTS","message":"buy more"}]}`)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *busyFront) refuses(busy time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.until.IsZero() {
		f.until = now.Add(busy)
	} else if now.Before(f.until) {
		f.impatient++
	}
	if now.Before(f.until) {
		f.asked++
		return true
	}
	return false
}

func (f *busyFront) host() string { return strings.TrimPrefix(f.URL, "http://") }

func TestBusyRegistryIsAskedWhenItSays(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	registry.Push("app:v1", images.Image(t, big(t, 21, 1000)))
	for _, target := range []string{"/manifests/v1", "/blobs/"} {
		t.Run(target, func(t *testing.T) {
			front := newBusyFront(t, registry.Host, target, "1", 990*time.Millisecond)
			s := open(t, nil)
			pull(t, s, front.host()+"/app:v1")
			if front.asked != 1 || front.impatient != 0 {
				t.Errorf("%d requests were refused, %d of them after it said when to come", front.asked, front.impatient)
			}
		})
	}
}

func TestRegistryThatIsBusyForTooLongIsAskedOnce(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	registry.Push("app:v1", images.Image(t, big(t, 22, 1000)))
	front := newBusyFront(t, registry.Host, "/blobs/", "3600", time.Hour)
	s := open(t, nil)
	_, err := s.Pull(t.Context(), front.host()+"/app:v1", nil, nil)
	if !errors.Is(err, ErrBusy) || !Unavailable(err) || !strings.Contains(err.Error(), "buy more") {
		t.Errorf("got %v", err)
	}
	if front.asked != 1 {
		t.Errorf("it was asked %d times", front.asked)
	}
}

func TestRetryAfterIsReadAsWritten(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Time{
		"": {}, "soon": {}, "-1": {}, "1.5": {},
		"0":                             now,
		"17":                            now.Add(17 * time.Second),
		"99999999999999999999":          now.Add(maxRetryAfter),
		"Fri, 02 Jan 2026 03:05:05 GMT": now.Add(time.Minute),
		"Fri, 02 Jan 2015 03:05:05 GMT": now,
		"Fri, 02 Jan 9026 03:05:05 GMT": now.Add(maxRetryAfter),
	} {
		if got := retryAfter(header, now); !got.Equal(want) {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

// Who is to blame: what cannot be reached or breaks off, but not what answers no.
func TestUnavailable(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{Auth: images.BasicAuth, User: "a", Password: "b"})
	open1 := images.NewRegistry(t, images.RegistryOptions{})
	ill := images.NewRegistry(t, images.RegistryOptions{})
	ill.Push("app:v1", images.Image(t, big(t, 23, 1000)))
	ill.Misbehave(images.Fault{Kind: images.Status, Target: "manifests", Code: http.StatusBadGateway})
	s := open(t, nil)
	for ref, want := range map[string]bool{
		"127.0.0.1:1/app:v1":        true,
		"no-such-host.invalid/a:v1": true,
		ill.Host + "/app:v1":        true,
		registry.Host + "/app:v1":   false,
		open1.Host + "/no/such:v1":  false,
		"not a reference":           false,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err := s.Pull(ctx, ref, nil, nil)
		cancel()
		if err == nil || Unavailable(err) != want {
			t.Errorf("%s: %v; unavailable %v, want %v", ref, err, !want, want)
		}
	}
	if Unavailable(nil) || Unavailable(fmt.Errorf("x: %w", ErrDenied)) {
		t.Error("nothing, or a refusal, is said to be unavailable")
	}
}
