package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
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

// signalled is the cause of a context that a signal has ended.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return s.String() }

// untilSignal returns a context that ends with the first of these signals. Call
// stop to hear of them no more.
func untilSignal(ctx context.Context, signals ...os.Signal) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, signals...)
	var listening sync.WaitGroup
	listening.Go(func() {
		select {
		case sig := <-caught:
			cancel(signalled{sig})
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		signal.Stop(caught)
		cancel(nil)
		listening.Wait()
	}
}

// signalCode is the exit code of a command that the signal has ended which ended
// ctx.
func signalCode(ctx context.Context) int {
	var by signalled
	if errors.As(context.Cause(ctx), &by) {
		if sig, ok := by.Signal.(syscall.Signal); ok {
			return exitSignal + int(sig)
		}
	}
	return exitFailed
}
