package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// output is berth's standard output. The first write that fails is told at once: few
// of those who write can say more of it than that. It is safe for concurrent use.
type output struct {
	w    io.Writer
	tell func(error)

	mu  sync.Mutex
	err error // that was told
}

// errOutput is what writes return after the error was told.
var errOutput = errors.New("standard output was lost")

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return n, err // a reader that left needs no words
	}
	o.mu.Lock()
	first := o.err == nil
	o.err = err
	o.mu.Unlock()
	if first {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		o.tell(fmt.Errorf("cannot write to standard output: %w", err))
	}
	return n, errOutput
}

// failed says whether something that was written is lost.
func (o *output) failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}

// asFile is the file that a writer is, if it is one.
func asFile(w io.Writer) (*os.File, bool) {
	if o, ok := w.(*output); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	return f, ok
}
