package cli

import (
	"context"
	"log/slog"
)

// lowered passes on records as if they were debugging ones.
type lowered struct{ slog.Handler }

func (h lowered) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle looks at the level itself: klog's errors come without asking.
func (h lowered) Handle(ctx context.Context, r slog.Record) error {
	if !h.Enabled(ctx, r.Level) {
		return nil
	}
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

func (h lowered) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lowered{h.Handler.WithAttrs(attrs)}
}

func (h lowered) WithGroup(name string) slog.Handler { return lowered{h.Handler.WithGroup(name)} }

// aboutNode leaves out warnings about a single pod while the level is that of
// warnings.
type aboutNode struct {
	slog.Handler
	level slog.Leveler
	pod   bool // a pod's name is among the attributes of all records
}

func (h aboutNode) Handle(ctx context.Context, r slog.Record) error {
	if h.level.Level() == slog.LevelWarn && r.Level == slog.LevelWarn {
		about := h.pod
		r.Attrs(func(a slog.Attr) bool {
			about = about || namesPod(a)
			return !about
		})
		if about {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h aboutNode) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.pod = h.pod || namesPod(a)
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h aboutNode) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

func namesPod(a slog.Attr) bool { return a.Key == "pod" || a.Key == "uid" }
