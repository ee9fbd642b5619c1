package imagestore

import (
	"context"
	"io"
	"log/slog"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// logBridge hands what containerd's libraries log at warning level and above
// to slog, for debugging: what matters of it they return as errors too. Their
// lower levels are noise here.
type logBridge struct{ log *slog.Logger }

// newLibraryLogger makes the logger that goes into contexts. Where the libraries
// have no context they use logrus's standard logger, to standard error; what
// they say there are notes about optional features of the filesystem.
func newLibraryLogger(to *slog.Logger) *log.Entry {
	logrus.SetLevel(logrus.ErrorLevel)
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.WarnLevel)
	l.AddHook(logBridge{log: to})
	return logrus.NewEntry(l)
}

func (logBridge) Levels() []logrus.Level {
	return []logrus.Level{logrus.WarnLevel, logrus.ErrorLevel}
}

func (b logBridge) Fire(e *logrus.Entry) error {
	attrs := make([]slog.Attr, 0, len(e.Data)+1)
	attrs = append(attrs, slog.String("from", "containerd"))
	for key, value := range e.Data {
		attrs = append(attrs, slog.Any(key, value))
	}
	b.log.LogAttrs(context.Background(), slog.LevelDebug, e.Message, attrs...) //nolint:sloglint // a library's words
	return nil
}
