package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// waiting is a job that ends with its context, or when it is told to.
type waiting struct{ end chan struct{} }

func (w waiting) run(ctx context.Context) *shimpb.ExecResponse {
	select {
	case <-w.end:
		return &shimpb.ExecResponse{Exit: &shimpb.ExitStatus{Code: 3}}
	case <-ctx.Done():
		return &shimpb.ExecResponse{TimedOut: true}
	}
}
func (w waiting) over() bool { return false }
func (w waiting) pause()     {}
func (w waiting) resume()    {}

// A session that nobody awaits ends after a while, and is forgotten; an answer that
// nobody asks for, too.
func TestSessionNobodyAwaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sessions
		se := s.begin(1, waiting{})
		s.over(2, &shimpb.ExecResponse{})
		time.Sleep(claimWait - time.Second)
		if se.cancelled() || s.find(1) != se || s.find(2) == nil {
			t.Error("it is ended too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !se.cancelled() || len(s.all()) != 0 {
			t.Errorf("cancelled %t, %d sessions are left", se.cancelled(), len(s.all()))
		}
	})
}

// One that is awaited goes on for as long as it takes. Its answer is there again for
// who did not get it, and not for ever.
func TestSessionAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sessions
		work := waiting{make(chan struct{})}
		se := s.begin(1, work)
		time.AfterFunc(10*claimWait, func() { close(work.end) })
		if got := s.await(t.Context(), se); got.Exit.Code != 3 {
			t.Errorf("answer %v", got)
		}
		for token := range uint64(answersKept - 1) {
			s.over(100+token, &shimpb.ExecResponse{})
			s.await(t.Context(), s.find(100+token))
		}
		if got := s.find(1); got == nil || s.await(t.Context(), got).Exit.Code != 3 {
			t.Error("the answer is lost")
		}
		for token := range uint64(2 * answersKept) {
			s.over(1000+token, &shimpb.ExecResponse{})
			s.await(t.Context(), s.find(1000+token))
		}
		if s.find(1) != nil || len(s.all()) > answersKept {
			t.Errorf("%d sessions are kept", len(s.all()))
		}
	})
}

// The end of the connection of who awaits it ends it, and so does stop.
func TestSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sessions
		ctx, lost := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, lost)
		if got := s.await(ctx, s.begin(1, waiting{})); !got.TimedOut {
			t.Errorf("answer %v", got)
		}
		se := s.begin(2, waiting{})
		s.stop()
		if !se.answer.TimedOut {
			t.Errorf("answer %v", se.answer)
		}
	})
}
