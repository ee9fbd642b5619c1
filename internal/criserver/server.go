package criserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/socket"
)

const (
	// maxMessageBytes is what a kubelet and crictl accept as well.
	maxMessageBytes = 16 << 20
	// drainTime is how long calls under way may take when the server ends.
	drainTime = 5 * time.Second
)

// Config says what is served. All fields but Log are required.
type Config struct {
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService
	Log     *slog.Logger // default: discard
}

// Server serves one runtime. Use: New, then Serve once.
type Server struct {
	grpc *grpc.Server
	end  context.CancelFunc // ends event streams
}

// New registers the services. It starts nothing.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ctx, end := context.WithCancel(context.Background())
	s := &Server{end: end}
	calls := &calls{log: cfg.Log}
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.UnaryInterceptor(calls.unary), grpc.StreamInterceptor(calls.stream),
		grpc.WaitForHandlers(true),
	)
	runtimeapi.RegisterRuntimeServiceServer(s.grpc, &runtimeServer{runtime: cfg.Runtime, ended: ctx.Done()})
	runtimeapi.RegisterImageServiceServer(s.grpc, &imageServer{images: cfg.Images})
	return s
}

// Serve answers calls that come in over l until ctx ends, lets those under way
// finish for a while and returns nil. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.end()
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		s.end()
		cut := time.AfterFunc(drainTime, s.grpc.Stop)
		defer cut.Stop()
		s.grpc.GracefulStop()
	})
	err := s.grpc.Serve(l)
	if stop() {
		return fmt.Errorf("cannot serve the CRI at %s: %w", l.Addr(), err)
	}
	<-drained
	return nil
}

// ErrInUse says that another process answers at the socket.
var ErrInUse = errors.New("another process serves there")

// Listen opens a unix socket for root alone. endpoint is a path or a unix://
// URL of one. A socket that a killed process left there is replaced; one that
// somebody serves gives ErrInUse.
func Listen(ctx context.Context, endpoint string) (net.Listener, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("cannot listen at %q: want unix:///an/absolute/path", endpoint)
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("cannot listen at %s: a socket's path has at most %d bytes, this one has %d; choose a shorter one", path, maxSocketPath, len(path))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil { //nolint:gosec // as /run is
		return nil, fmt.Errorf("cannot listen at %s: %w", path, err)
	}
	if err := free(ctx, path); err != nil {
		return nil, fmt.Errorf("cannot listen at %s: %w", path, err)
	}
	return socket.Listen(path)
}

// maxSocketPath is sizeof(sun_path) without the final zero: those who call can't
// reach a longer one.
const maxSocketPath = 107

// free says that nobody serves at path.
func free(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("there is something that is no socket; remove it or choose another path")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := socket.Dial(ctx, path)
	if err == nil {
		conn.Close()
		return ErrInUse
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil // a killed process left it
	}
	return err
}
