package logs

import (
	"context"
	"errors"
	"io"
	"time"
)

// errEnough ends reading when the limit is reached.
var errEnough = errors.New("enough")

// Format says how entries are written out.
type Format struct {
	Timestamps bool  // each line starts with its time
	LimitBytes int64 // end after so many bytes; 0: no limit
}

// Copy writes a log to two writers, as the container wrote it. A nil writer
// leaves its stream out.
func Copy(ctx context.Context, path string, o Options, f Format, stdout, stderr io.Writer) error {
	left := f.LimitBytes
	midLine := map[string]bool{} // streams whose last entry was partial
	var line []byte
	err := Read(ctx, path, o, func(e Entry) error {
		w := stdout
		if e.Stream == Stderr {
			w = stderr
		}
		if w == nil {
			return nil
		}
		line = line[:0]
		if f.Timestamps && !midLine[e.Stream] {
			line = append(e.Time.AppendFormat(line, time.RFC3339Nano), ' ')
		}
		line = append(line, e.Text...)
		if midLine[e.Stream] = e.Partial; !e.Partial {
			line = append(line, '\n')
		}
		if f.LimitBytes > 0 && int64(len(line)) >= left {
			if _, err := w.Write(line[:left]); err != nil {
				return err
			}
			return errEnough
		}
		left -= int64(len(line))
		_, err := w.Write(line)
		return err
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
