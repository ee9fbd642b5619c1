package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/server/ociruntime"
	"github.com/berth-run/berth/internal/shim/server/seccompcache"
	"github.com/berth-run/berth/internal/shim/shimpb"
	"github.com/berth-run/berth/internal/socket"
)

// Config says where a Server works. The zero value of an optional field means
// its default.
type Config struct {
	RunDir  string // sockets and state; required, absolute
	Cgroup  string // cgroup to move to, below each hierarchy's root; empty: stay
	Name    string // how the shim's processes are called; default "berth-shim"
	Version string // of the program, for error messages
	Build   string // names the program exactly, see shim.BuildID; may be empty
	Log     *slog.Logger
}

// ErrServed is returned by Run when another shim serves the run directory.
var ErrServed = errors.New("another shim serves this run directory")

// Server owns the containers of one run directory. A process runs one at most:
// the server reaps every child of the process.
type Server struct {
	cfg    Config
	log    *slog.Logger
	bootID string
	limits *limits
	poll   *poller
	rpc    *ttrpc.Server

	// What an upgrade hands over: set before clients can connect.
	lock   *os.File
	socket *net.UnixListener
	mail   *net.UnixConn

	events   hub
	fds      mailbox
	sessions sessions
	profiles profiles
	seccomp  seccompcache.Cache

	// starting is held for reading while a process is started, or somebody waits
	// for helpers that look like orphans (see undisturbed), and for writing while
	// an orphan is reaped.
	starting   sync.RWMutex
	execNumber atomic.Uint64
	work       sync.WaitGroup // what follows the end of a process

	mu         sync.Mutex
	containers map[string]*container
	children   map[int]*process                 // those that somebody else than the reaper reaps
	calls      map[uint64]context.CancelFunc    // what Cancel can end
	programs   map[string]ociruntime.ExecGroups // of each program that was asked
	awaited    int                              // calls of programs that leave a process; see takeOrphan
	orphans    map[int]orphanEnd                // by pid, of those reaped meanwhile
	trim       *time.Timer                      // gives memory back when it has been quiet

	shutdown chan struct{} // closed by Shutdown
	once     sync.Once

	gate      shim.Gate  // calls are inside, but for those that an upgrade may cut off
	upgrading sync.Mutex // one at a time
	// ends is held for reading while an end is collected; frozen is set under it
	// for the time of an upgrade, in which none is.
	ends   sync.RWMutex
	frozen bool
}

// New returns a server that does nothing until Run.
func New(cfg Config) (*Server, error) {
	if !cleanAbs(cfg.RunDir) {
		return nil, fmt.Errorf("shim: run directory %q is not an absolute path", cfg.RunDir)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Name == "" {
		cfg.Name = "berth-shim"
	}
	return &Server{
		cfg: cfg, log: cfg.Log,
		containers: make(map[string]*container),
		children:   make(map[int]*process),
		calls:      make(map[uint64]context.CancelFunc),
		programs:   make(map[string]ociruntime.ExecGroups),
		orphans:    make(map[int]orphanEnd),
		shutdown:   make(chan struct{}),
	}, nil
}

func (s *Server) containersDir() string   { return filepath.Join(s.cfg.RunDir, "containers") }
func (s *Server) libcontainerDir() string { return filepath.Join(s.cfg.RunDir, "libcontainer") }

// Run adopts what is there and serves until ctx ends or a client asks for the
// end. Containers live on. ready is called once clients can connect.
func (s *Server) Run(ctx context.Context, ready func()) error {
	for _, dir := range []string{s.cfg.RunDir, s.containersDir(), s.libcontainerDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("cannot create run directory: %w", err)
		}
	}
	given, err := receiveHandover()
	if err != nil {
		return err
	}
	if given != nil {
		s.lock = os.NewFile(uintptr(given.Lock), shim.LockName)
	} else if s.lock, err = lockRunDir(s.cfg.RunDir); err != nil {
		return err
	}
	defer s.lock.Close()
	if s.cfg.Cgroup != "" {
		if err := moveSelf(s.cfg.Cgroup); err != nil {
			s.log.Warn("the shim stays in the cgroup of who started it", "err", err)
		}
	}
	if s.bootID, err = bootID(); err != nil {
		return fmt.Errorf("cannot read boot id: %w", err)
	}
	if s.limits, err = readLimits(s.log); err != nil {
		return fmt.Errorf("cannot read own limits: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become child subreaper: %w", err)
	}
	if s.poll, err = newPoller(); err != nil {
		return err
	}
	if err := s.useForPrograms(); err != nil {
		return err
	}
	return s.serve(ctx, given, ready)
}

// serve takes over what a former program of this process has given, if any.
func (s *Server) serve(ctx context.Context, given *handover, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer s.work.Wait()
	defer wg.Wait()
	defer s.poll.stop()
	defer s.sessions.stop()
	defer cancel()
	var pollErr error
	wg.Go(func() { pollErr = s.poll.run(); cancel() })
	s.mu.Lock()
	s.trim = time.AfterFunc(trimAfter, debug.FreeOSMemory)
	s.mu.Unlock()
	defer s.trim.Stop()

	if err := s.adoptAll(given); err != nil {
		return err
	}
	// Not before: children that have ended during an upgrade are no orphans.
	wg.Go(func() { s.reapOrphans(ctx) })

	if err := s.openSockets(given); err != nil {
		return err
	}
	wg.Go(func() { s.fds.receive(s.mail) })
	defer s.mail.Close()
	var err error
	s.rpc, err = ttrpc.NewServer(
		ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser()), ttrpc.WithUnaryServerInterceptor(s.admit))
	if err != nil {
		return err
	}
	shimpb.RegisterShimService(s.rpc, &service{s})
	served := make(chan error, 1)
	go func() { served <- s.rpc.Serve(ctx, s.socket) }()
	if ready != nil {
		ready()
	}
	s.log.Info("shim serves", "run", s.cfg.RunDir, "pid", os.Getpid(), "version", s.cfg.Version)
	select {
	case err := <-served:
		return fmt.Errorf("cannot serve: %w", err)
	case <-ctx.Done():
	case <-s.shutdown:
		// Let the answer to Shutdown out.
		sctx, stop := context.WithTimeout(ctx, time.Second)
		_ = s.rpc.Shutdown(sctx)
		stop()
	}
	_ = s.rpc.Close()
	<-served
	return pollErr
}

// openSockets makes the sockets of the run directory, or takes over those given.
func (s *Server) openSockets(given *handover) (err error) {
	if given != nil {
		s.socket, s.mail, err = given.sockets()
		return err
	}
	if s.mail, err = listenFDs(filepath.Join(s.cfg.RunDir, shim.FDsName)); err != nil {
		return err
	}
	if s.socket, err = listen(filepath.Join(s.cfg.RunDir, shim.SocketName)); err != nil {
		s.mail.Close()
	}
	return err
}

// lockRunDir makes sure that one shim serves the directory. The lock goes with
// the process.
func lockRunDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, shim.LockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock run directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if err == unix.EWOULDBLOCK {
			return nil, ErrServed
		}
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	return f, nil
}

// listen replaces a socket that a former shim left: we hold the lock.
func listen(path string) (*net.UnixListener, error) {
	tmp := path + ".new"
	for _, p := range []string{tmp, path} {
		if err := os.Remove(p); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	var l *net.UnixListener
	err := socket.At(tmp, func(short string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	// The path of the socket outlives this process, as a killed one's does.
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(tmp, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	if err := os.Rename(tmp, path); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func listenFDs(path string) (*net.UnixConn, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var c *net.UnixConn
	err := socket.At(path, func(short string) (err error) {
		c, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: short, Net: "unixgram"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// find returns the container of that id.
func (s *Server) find(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[id]
	if c == nil {
		return nil, fmt.Errorf("container %q: %w", id, shim.ErrNotFound)
	}
	return c, nil
}

// all returns every container, in no order.
func (s *Server) all() []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*container, 0, len(s.containers))
	for _, c := range s.containers {
		list = append(list, c)
	}
	return list
}

// forget drops a container of which nothing is left.
func (s *Server) forget(c *container) {
	c.mu.Lock()
	c.removed = true
	c.mu.Unlock()
	s.mu.Lock()
	if s.containers[c.id] == c {
		delete(s.containers, c.id)
	}
	s.mu.Unlock()
	s.settled()
}

// cancellable makes a call that Cancel and ctx end.
func (s *Server) cancellable(ctx context.Context, call uint64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.calls[call] = cancel
	s.mu.Unlock()
	return ctx, func() {
		s.mu.Lock()
		delete(s.calls, call)
		s.mu.Unlock()
		cancel()
	}
}

// trimAfter is how long it has to be quiet before unused memory goes back to
// the kernel: doing it costs a few milliseconds.
const trimAfter = 3 * time.Second

// settled is called after work that needed memory.
func (s *Server) settled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trim != nil {
		s.trim.Reset(trimAfter)
	}
}
