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

func (h lowered) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

func (h lowered) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lowered{h.Handler.WithAttrs(attrs)}
}

func (h lowered) WithGroup(name string) slog.Handler { return lowered{h.Handler.WithGroup(name)} }
