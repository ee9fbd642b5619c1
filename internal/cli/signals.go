package cli

import (
	"context"
	"os"
	"syscall"
	"time"
)

// oneRequest is how long signals of the same kind count as one: who signals a
// whole process group, as timeout(1) and terminals that close do, hits the same
// process more than once.
const oneRequest = 300 * time.Millisecond

// requests passes signals on until ctx ends, those of one request once. It looks
// at a signal when it comes: the reader of out may be busy.
func requests(ctx context.Context, in <-chan os.Signal, out chan<- os.Signal) {
	first := make(map[os.Signal]time.Time)
	for {
		var sig os.Signal
		select {
		case sig = <-in:
		case <-ctx.Done():
			return
		}
		// Each SIGPIPE is a write that failed, and the last may be the one that counts.
		now := time.Now()
		if at, ok := first[sig]; ok && now.Sub(at) < oneRequest && sig != syscall.SIGPIPE {
			continue
		}
		first[sig] = now
		select {
		case out <- sig:
		case <-ctx.Done():
			return
		}
	}
}
