package logs

import (
	"bytes"
	"fmt"
	"time"
)

// Entry is one line of a log file: a line that the container wrote, or a part
// of a long one.
type Entry struct {
	Time    time.Time
	Stream  string // "stdout" or "stderr"
	Partial bool   // the line goes on in the stream's next entry
	Text    []byte // without the end of the line; valid until the callback returns
}

// Streams of an Entry.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Parse reads TIME STREAM TAGS TEXT. Of the tags, separated by colons, the first
// says whether the line is partial; others are for the future.
func Parse(line []byte) (Entry, error) {
	stamp, rest, ok1 := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	stream, rest, ok2 := bytes.Cut(rest, []byte(" "))
	tags, text, ok3 := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 || (!ok3 && len(tags) == 0) {
		return Entry{}, fmt.Errorf("line %.80q is not in the CRI log format", line)
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Entry{}, fmt.Errorf("line %.80q is not in the CRI log format: %w", line, err)
	}
	e := Entry{Time: at, Stream: string(stream), Text: text}
	if e.Stream != Stdout && e.Stream != Stderr {
		return Entry{}, fmt.Errorf("line %.80q is of stream %q, want stdout or stderr", line, stream)
	}
	tag, _, _ := bytes.Cut(tags, []byte(":"))
	switch string(tag) {
	case "P":
		e.Partial = true
	case "F":
	default:
		return Entry{}, fmt.Errorf("line %.80q has tag %q, want P or F", line, tag)
	}
	return e, nil
}
