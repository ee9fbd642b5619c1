package nodeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/cri/imagestore"
)

// Agent is what the API needs of a node agent. All methods are safe for
// concurrent use.
type Agent interface {
	// Apply asks for objects and returns the pods' names in the order given.
	Apply(ctx context.Context, o agent.Objects) ([]agent.Ref, error)
	// Told says that the ends of pods were told to who awaited them.
	Told(uids []types.UID)
	// Pods lists all pods with their newest status.
	Pods() []*corev1.Pod
	// Describe tells all that is known of the pods with these uids.
	Describe(uids []types.UID) []agent.Description
	// Watch calls fn with the newest status of each pod, then with all that
	// happens, until ctx ends or fn fails.
	Watch(ctx context.Context, fn func(u agent.Update, lost int) error) error
	// Stop ends what runs of a pod, Delete the pod itself; grace in seconds can
	// only shorten the pod's own.
	Stop(namespace, name string, grace *int64) (agent.Ref, error)
	Delete(namespace, name string, grace *int64) (agent.Ref, error)
	// DeleteUID is Delete for exactly that pod; it says whether it is known. TimeOut
	// is Stop, likewise, for who has waited so long for the pod in vain; why says
	// what the pod was not done by.
	DeleteUID(uid types.UID, grace *int64) bool
	TimeOut(uid types.UID, waited time.Duration, why string, grace *int64) bool
	// Known says whether something of the pod is left.
	Known(uid types.UID) bool
	// Keep returns when all that was asked for is on disk, or says why it is not.
	Keep(ctx context.Context) error
	// LogDir is the folder of a container's log files.
	LogDir(uid types.UID, container string) (string, bool)
	// Trouble says what keeps the agent from doing anything to containers; nil: nothing
	// that is known.
	Trouble() error

	Exec(ctx context.Context, namespace, pod, container string, r agent.StreamRequest) (*url.URL, error)
	Attach(ctx context.Context, namespace, pod, container string, r agent.StreamRequest) (*url.URL, error)
	PortForward(ctx context.Context, namespace, pod string, ports []int32) (*url.URL, error)

	Images(ctx context.Context) ([]imagestore.Image, error)
	PullImage(ctx context.Context, ref string, progress func(imagestore.Progress)) (imagestore.Image, error)
	ImportImages(ctx context.Context, path string) ([]imagestore.Image, error)
	RemoveImage(ctx context.Context, ref string) error
	PruneImages(ctx context.Context, all bool) (imagestore.Collected, error)
}

// Config says what a Server serves. The zero value of an optional field means
// its default.
type Config struct {
	Agent Agent   // required
	Info  Version // told to who asks
	// Leave asks the agent's process to end; its pods run on. Required.
	Leave func()
	Log   *slog.Logger // default: discard
}

// Server serves the API. It is safe for concurrent use.
type Server struct {
	cfg    Config
	mux    *http.ServeMux
	active activity
	runs   followers
	coming coming
	began  time.Time
}

// New returns a Server; nothing is served before Serve.
func New(cfg Config) (*Server, error) {
	if cfg.Agent == nil || cfg.Leave == nil {
		return nil, errors.New("nodeapi: Config.Agent and Config.Leave are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), began: time.Now()}
	s.active.last = time.Now()
	for pattern, h := range map[string]handler{
		"GET /pods": s.pods,
		"GET /containerLogs/{namespace}/{pod}/{container}": s.containerLogs,

		"GET " + versionPath:                         s.version,
		"POST /berth/v1/leave":                       s.leave,
		"POST /berth/v1/apply":                       s.apply,
		"POST /berth/v1/told":                        s.told,
		"POST " + keepPath:                           s.keep,
		"GET /berth/v1/describe":                     s.describe,
		"GET /berth/v1/watch":                        s.watch,
		"GET /berth/v1/logs":                         s.logs,
		"POST /berth/v1/pods/{namespace}/{pod}/stop": s.stopPod,
		"DELETE /berth/v1/pods/{namespace}/{pod}":    s.deletePod,

		"GET /berth/v1/images":          s.images,
		"POST /berth/v1/images/pull":    s.pullImage,
		"POST /berth/v1/images/import":  s.importImages,
		"POST /berth/v1/images/prune":   s.pruneImages,
		"DELETE /berth/v1/images/{ref}": s.removeImage,
	} {
		s.mux.Handle(pattern, h)
	}
	for path, h := range map[string]handler{
		"/exec/{namespace}/{pod}/{container}":   s.exec,
		"/attach/{namespace}/{pod}/{container}": s.attach,
		"/portForward/{namespace}/{pod}":        s.portForward,
	} {
		// SPDY comes as POST, WebSocket as GET.
		s.mux.Handle("POST "+path, h)
		s.mux.Handle("GET "+path, h)
	}
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.active.begin()()
	s.mux.ServeHTTP(w, r)
}

// Idle says since when nobody has asked anything; zero while somebody is being
// answered.
func (s *Server) Idle() time.Time { return s.active.idleSince() }

// Serve answers on l until ctx ends, then cuts what is still being answered and
// waits for it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	err := srv.Serve(l)
	s.active.wait()
	if errors.Is(err, http.ErrServerClosed) {
		return ctx.Err()
	}
	return fmt.Errorf("cannot serve the node's API: %w", err)
}

// handler answers a request, or returns why it can't.
type handler func(w http.ResponseWriter, r *http.Request) error

// badRequest is an error of the caller's.
type badRequest struct{ error }

func (e badRequest) Unwrap() error { return e.error }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := h(w, r)
	if r.Context().Err() != nil {
		// The agent leaves, or the client has left: what was sent so far must not
		// look complete.
		panic(http.ErrAbortHandler)
	}
	if err == nil {
		return
	}
	code := http.StatusInternalServerError
	var bad badRequest
	switch {
	case errors.Is(err, errFollowed), errors.Is(err, errNeeded):
		code = http.StatusConflict
	case errors.Is(err, errEnded):
		code = http.StatusGone
	case errors.Is(err, agent.ErrNoPod), errors.Is(err, agent.ErrNoContainer), errors.Is(err, imagestore.ErrNotFound):
		code = http.StatusNotFound
	case errors.As(err, &bad), errors.Is(err, imagestore.ErrInvalidReference), errors.Is(err, imagestore.ErrAmbiguous):
		code = http.StatusBadRequest
	}
	http.Error(w, err.Error(), code)
}

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}
