package cri

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/berth-run/berth/internal/shim"
)

// What the program that starts a command inside the container says when it may
// start no thread, and dies of: a Go program's last words, a few KiB of them. They
// come on the standard error of the command, which never ran.
var noThread = [...]string{"runtime/cgo: pthread_create failed: ", "runtime: failed to create new OS thread "}

// diedEarly is what libcontainer says of a starter that died without a word to it.
const diedEarly = "procReady not received"

// errNoProcess says that the container may have no more processes.
var errNoProcess = errors.New("its limit of processes and threads is reached")

// lastWords passes on what a command writes to its standard error, but for the last
// words of a starter: those it holds until it is known whose they are. It is safe for
// concurrent use.
type lastWords struct {
	w io.Writer

	mu     sync.Mutex
	held   []byte
	passes bool // nothing is held any more
}

// maxLastWords is how much is held, in bytes.
const maxLastWords = 256 << 10

func (l *lastWords) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.passes {
		return l.w.Write(p)
	}
	l.held = append(l.held, p...)
	if len(l.held) > maxLastWords || !mayBe(l.held) {
		return len(p), l.pass()
	}
	return len(p), nil
}

// mayBe says whether a text is, or may become, the last words of a starter.
func mayBe(text []byte) bool {
	for _, begin := range noThread {
		n := min(len(text), len(begin))
		if string(text[:n]) == begin[:n] {
			return true
		}
	}
	return false
}

// pass lets all go. l.mu is held.
func (l *lastWords) pass() error {
	l.passes = true
	held := l.held
	l.held = nil
	if len(held) == 0 {
		return nil
	}
	_, err := io.Copy(l.w, bytes.NewReader(held))
	return err
}

// end says what a start that failed with err failed by, without the starter's last
// words; a command that was started gets what it said itself.
func (l *lastWords) end(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var start *shim.StartError
	if !errors.As(err, &start) || !strings.Contains(start.Message, diedEarly) {
		return errors.Join(err, l.pass())
	}
	if len(l.held) > 0 {
		l.held, l.w, l.passes = nil, io.Discard, true
		return errNoProcess
	}
	return errors.Join(errDiedEarly, l.pass())
}

// errDiedEarly says what may be the cause where the starter could not even say that.
var errDiedEarly = errors.New("what was to start it was killed: the container may be at its limit of memory, or of processes and threads")
