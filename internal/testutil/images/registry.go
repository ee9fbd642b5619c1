// Package images makes container images and registries for tests: images from
// files, with whiteouts, for several platforms; registries on a loopback port
// that can ask for credentials, speak TLS and misbehave on purpose. It must not
// be used outside tests.
package images

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// AuthKind is how a registry wants to be shown credentials.
type AuthKind int

const (
	NoAuth     AuthKind = iota
	BasicAuth           // Authorization: Basic with every request
	BearerAuth          // a token from the registry's own token service
)

// RegistryOptions say what a registry is like. The zero value is open and
// speaks plain http.
type RegistryOptions struct {
	Auth           AuthKind
	User, Password string // for BasicAuth and BearerAuth
	NoRange        bool   // refuses to send a blob from the middle, with 416
	TLS            bool   // https with a certificate of its own; see Registry.CAFile
}

// Registry is a registry on a loopback port that ends with the test. Safe for
// concurrent use.
type Registry struct {
	Host   string // 127.0.0.1:port
	CAFile string // PEM file of the certificate to trust; empty without TLS

	t       testing.TB
	options RegistryOptions
	server  *httptest.Server
	store   http.Handler
	ended   chan struct{} // closed at the end, so that stalled answers end

	mu       sync.Mutex
	faults   []*Fault       // guarded by mu
	requests map[string]int // guarded by mu; GETs by kind/reference
	sent     int64          // guarded by mu; bytes of blobs
}

// token is what the token service gives out.
const token = "a-token-for-tests"

// NewRegistry starts a registry.
func NewRegistry(t testing.TB, o RegistryOptions) *Registry {
	t.Helper()
	r := &Registry{
		t: t, options: o, requests: map[string]int{}, ended: make(chan struct{}),
		store: registry.New(registry.Logger(log.New(io.Discard, "", 0))),
	}
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if o.TLS {
		r.server.StartTLS()
		r.CAFile = filepath.Join(t.TempDir(), "ca.pem")
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
		if err := os.WriteFile(r.CAFile, block, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		r.server.Start()
	}
	r.Host = r.server.Listener.Addr().String()
	t.Cleanup(func() {
		close(r.ended)
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

// DropConnections cuts all connections of clients.
func (r *Registry) DropConnections() { r.server.CloseClientConnections() }

// Push stores an image under repository:tag and gives its full reference.
func (r *Registry) Push(repoTag string, img v1.Image) string {
	r.t.Helper()
	ref := r.reference(repoTag)
	if err := remote.Write(ref, img, r.remoteOptions()...); err != nil {
		r.t.Fatal(err)
	}
	return ref.Name()
}

// PushIndex stores an index and all images in it.
func (r *Registry) PushIndex(repoTag string, index v1.ImageIndex) string {
	r.t.Helper()
	ref := r.reference(repoTag)
	if err := remote.WriteIndex(ref, index, r.remoteOptions()...); err != nil {
		r.t.Fatal(err)
	}
	return ref.Name()
}

func (r *Registry) reference(repoTag string) name.Reference {
	r.t.Helper()
	ref, err := name.ParseReference(r.Host+"/"+repoTag, name.Insecure)
	if err != nil {
		r.t.Fatal(err)
	}
	return ref
}

func (r *Registry) remoteOptions() []remote.Option {
	options := []remote.Option{remote.WithTransport(r.server.Client().Transport)}
	if r.options.Auth != NoAuth {
		options = append(options, remote.WithAuth(&authn.Basic{Username: r.options.User, Password: r.options.Password}))
	}
	return options
}

// Gets says how many GET requests there were for a blob or manifest (kind
// "blobs" or "manifests"), by digest or tag.
func (r *Registry) Gets(kind, reference string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests[kind+"/"+reference]
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/token" {
		r.serveToken(w, req)
		return
	}
	if !r.authorized(req) {
		challenge := `Basic realm="test"`
		if r.options.Auth == BearerAuth {
			scheme := "http"
			if r.options.TLS {
				scheme = "https"
			}
			challenge = `Bearer realm="` + scheme + "://" + r.Host + `/token",service="test"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	}
	kind, reference := target(req)
	if req.Method == http.MethodGet && kind != "" {
		r.mu.Lock()
		r.requests[kind+"/"+reference]++
		r.mu.Unlock()
	}
	if fault := r.nextFault(req.Method, kind, reference); fault != nil {
		r.misbehave(w, req, fault)
		return
	}
	if kind == "blobs" && req.Method == http.MethodGet {
		r.serveBlob(w, req)
		return
	}
	r.store.ServeHTTP(w, req)
}

// serveBlob sends a blob, or the asked part of it: the store behind knows only
// ranges with an end.
func (r *Registry) serveBlob(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Range") != "" && r.options.NoRange {
		http.Error(w, `{"errors":[{"code":"UNKNOWN","message":"no ranges here"}]}`, http.StatusRequestedRangeNotSatisfiable)
		return
	}
	whole := req.Clone(req.Context())
	whole.Header.Del("Range")
	answer := httptest.NewRecorder()
	r.store.ServeHTTP(answer, whole)
	for _, header := range []string{"Content-Type", "Docker-Content-Digest"} {
		w.Header().Set(header, answer.Header().Get(header))
	}
	if answer.Code != http.StatusOK {
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return
	}
	http.ServeContent(&countingWriter{ResponseWriter: w, registry: r}, req, "", time.Time{}, bytes.NewReader(answer.Body.Bytes()))
}

// countingWriter counts the bytes of blobs sent.
type countingWriter struct {
	http.ResponseWriter
	registry *Registry
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	c.registry.sent += int64(n)
	return n, err
}

// BlobBytes says how many bytes of blobs were sent without fault so far.
func (r *Registry) BlobBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent
}

func (r *Registry) authorized(req *http.Request) bool {
	switch r.options.Auth {
	case BasicAuth:
		return r.passwordFits(req)
	case BearerAuth:
		return req.Header.Get("Authorization") == "Bearer "+token
	case NoAuth:
	}
	return true
}

func (r *Registry) passwordFits(req *http.Request) bool {
	user, password, ok := req.BasicAuth()
	return ok && user == r.options.User && password == r.options.Password
}

// serveToken gives a token for user and password (GET), or for the password as
// refresh token (POST), as registries do for identity tokens.
func (r *Registry) serveToken(w http.ResponseWriter, req *http.Request) {
	refresh := req.Method == http.MethodPost && req.FormValue("refresh_token") == r.options.Password ||
		req.Method == http.MethodPost && req.FormValue("username") == r.options.User && req.FormValue("password") == r.options.Password
	if !refresh && !r.passwordFits(req) {
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"wrong password"}]}`, http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"token":"`+token+`","access_token":"`+token+`","expires_in":300}`)
}

// Token is the bearer token of registries with BearerAuth.
func (r *Registry) Token() string { return token }

// target says what a request is about: blobs or manifests, and which.
func target(req *http.Request) (kind, reference string) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if len(parts) < 4 || parts[0] != "v2" {
		return "", ""
	}
	kind, reference = parts[len(parts)-2], parts[len(parts)-1]
	if kind != "blobs" && kind != "manifests" {
		return "", ""
	}
	return kind, reference
}
