package ociruntime

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"

	"github.com/berth-run/berth/internal/shim"
)

// Error says what a program could not do, in its own words.
type Error struct {
	Program, Command string // such as runc, create
	Message          string
}

func (e *Error) Error() string {
	if strings.HasPrefix(e.Message, e.Program) {
		return e.Message // it says so itself
	}
	return e.Program + " " + e.Command + ": " + e.Message
}

// StartError is the error as one of a start.
func (e *Error) StartError() *shim.StartError {
	return &shim.StartError{Reason: e.reason(), Message: e.Error()}
}

// reason finds out why a process could not be started. Programs say it in words of
// their own, which have in common those of the system and of shells.
func (e *Error) reason() string {
	text := strings.ToLower(e.Message)
	about := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	if !about("exec: ", "executable", "execve") { // something else was missing, such as a mount's source
		return shim.StartFailed
	}
	switch {
	case about("permission denied", "correct permission", "is a directory"):
		return shim.PermissionDenied
	case about("not found", "no such file or directory", "not a directory", "does not exist"):
		return shim.CommandNotFound
	}
	return shim.StartFailed
}

// logMax is how much of the end of a program's log is looked at, in bytes.
const logMax = 64 << 10

// said is the last error in the log that a program kept, or what it printed.
func said(log string, err error) string {
	text := strings.TrimSpace(err.Error())
	b, rerr := os.ReadFile(log)
	if rerr != nil {
		return text
	}
	if len(b) > logMax {
		b = b[len(b)-logMax:]
	}
	for line := range bytes.Lines(b) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal(line, &entry) != nil || entry.Msg == "" {
			continue
		}
		switch entry.Level {
		case "", "error", "fatal", "panic":
			text = strings.TrimSpace(entry.Msg)
		}
	}
	return text
}
