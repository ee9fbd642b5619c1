package podlogs

import (
	"time"

	"github.com/berth-run/berth/internal/cri/logs"
)

// maxText is the longest text of one Line, in bytes. Longer ones come in parts.
const maxText = 256 << 10

// Line is one line that a container wrote.
type Line struct {
	Time   time.Time
	Stream string // stdout or stderr
	Text   []byte // without the line feed; valid until the callback returns
	// Partial says that the text goes on in the next line of the same stream.
	Partial bool
	// Lost says that lines before this place may be missing: they were rotated
	// away before they could be read. There is nothing else in such a Line.
	Lost bool
}

// parse reads one entry of a log file.
func parse(entry []byte) (Line, bool) {
	e, err := logs.Parse(entry)
	if err != nil {
		return Line{}, false
	}
	return Line{Time: e.Time, Stream: e.Stream, Text: e.Text, Partial: e.Partial}, true
}

// joiner puts the entries of a long line together.
type joiner struct{ stdout, stderr []byte }

// add returns the line that is complete with this entry, if one is.
func (j *joiner) add(l Line) (Line, bool) {
	held := &j.stdout
	if l.Stream == logs.Stderr {
		held = &j.stderr
	}
	if len(*held) == 0 && !l.Partial {
		return l, true
	}
	*held = append(*held, l.Text...)
	if l.Partial && len(*held) < maxText {
		return Line{}, false
	}
	l.Text = *held
	*held = nil
	return l, true
}
