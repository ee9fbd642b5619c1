package cli

import (
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"sync"

	containerdlog "github.com/containerd/log"
	"k8s.io/klog/v2"
)

// logging is where berth's own log goes: to a writer that can be exchanged while
// a view owns the terminal.
type logging struct {
	logger *slog.Logger
	level  *slog.LevelVar
	target *switchWriter
}

// newLogging returns a log at level; empty: errors, and warnings that are about
// the machine and not about one pod, which the pod's state and events tell.
func newLogging(w io.Writer, level, format string) (*logging, error) {
	l := &logging{level: new(slog.LevelVar), target: &switchWriter{w: w}}
	l.level.Set(slog.LevelWarn)
	if level != "" {
		if err := l.setLevel(level); err != nil {
			return nil, err
		}
	}
	opts := &slog.HandlerOptions{Level: l.level}
	var h slog.Handler
	switch format {
	case "text":
		h = slog.NewTextHandler(l.target, opts)
	case "json":
		h = slog.NewJSONHandler(l.target, opts)
	default:
		return nil, fmt.Errorf("--log-format is %q, want text or json", format)
	}
	if level == "" {
		h = aboutNode{Handler: h, level: l.level}
	}
	l.logger = slog.New(h)
	l.quietLibraries()
	return l, nil
}

func (l *logging) setLevel(name string) error {
	var level slog.Level
	switch name {
	case "debug":
		level = slog.LevelDebug
	case "info":
		level = slog.LevelInfo
	case "warn":
		level = slog.LevelWarn
	case "error":
		level = slog.LevelError
	default:
		return fmt.Errorf("--log-level is %q, want debug, info, warn or error", name)
	}
	l.level.Set(level)
	return nil
}

// quietLibraries leads what Kubernetes', containerd's and Go's libraries log into ours,
// for debugging only: what matters of it they also return as errors.
func (l *logging) quietLibraries() {
	klog.SetSlogLogger(slog.New(lowered{l.logger.Handler()}))
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(l.logger.Handler(), slog.LevelDebug).Writer())
	containerdlog.L.Logger.SetOutput(io.Discard)
	if l.level.Level() <= slog.LevelDebug {
		containerdlog.L.Logger.SetOutput(l.target)
	}
}

// switchWriter writes to one of several writers in turn, a line at a time. It is
// safe for concurrent use.
type switchWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *switchWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// set changes the writer and returns the one before.
func (s *switchWriter) set(w io.Writer) (before io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.w = s.w, w
	return before
}
