package server

import (
	"context"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

const (
	// claimWait is how long a session goes on that nobody awaits: its client is gone.
	claimWait = 10 * time.Second
	// answersKept is how many answers are kept: an upgrade may cut one off that is
	// on its way, and then it is asked for again.
	answersKept = 64
)

// session is an exec or an attachment. It belongs to no connection: an upgrade ends
// those, and the client awaits the session again.
type session struct {
	token     uint64
	cancel    context.CancelFunc // ends it
	cancelled func() bool        // says that cancel was called
	claim     *time.Timer        // cancels it when nobody has awaited it for claimWait

	answered bool // under the mutex of sessions

	mu   sync.Mutex
	work job // nil once it is over

	done   chan struct{}        // closed when it is over
	answer *shimpb.ExecResponse // valid once done is closed; of an attachment it is empty
}

// job is what a session does.
type job interface {
	// run does it, and returns early if ctx ends.
	run(ctx context.Context) *shimpb.ExecResponse
	// over says that run returns at once.
	over() bool
	// pause stops it for an upgrade, until resume if that fails.
	pause()
	resume()
}

// sessions are those that are under way, or whose answer may be asked for again.
// The zero value is ready. Safe for concurrent use.
type sessions struct {
	mu       sync.Mutex
	open     map[uint64]*session
	answered []uint64 // the last ones, oldest first
	running  sync.WaitGroup
}

// begin makes a session of work.
func (s *sessions) begin(token uint64, work job) *session {
	ctx, cancel := context.WithCancel(context.Background())
	se := &session{
		token: token, work: work, done: make(chan struct{}),
		cancel: cancel, cancelled: func() bool { return ctx.Err() != nil },
	}
	se.claim = time.AfterFunc(claimWait, func() {
		se.cancel()
		<-se.done
		s.forget(token)
	})
	s.add(se)
	s.running.Go(func() { se.end(work.run(ctx)) })
	return se
}

// over makes a session that has ended with answer.
func (s *sessions) over(token uint64, answer *shimpb.ExecResponse) {
	se := &session{token: token, done: make(chan struct{}), cancel: func() {}, answer: answer}
	se.claim = time.AfterFunc(claimWait, func() { s.forget(token) })
	close(se.done)
	s.add(se)
}

func (s *sessions) add(se *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[uint64]*session)
	}
	s.open[se.token] = se
}

func (se *session) end(answer *shimpb.ExecResponse) {
	se.cancel()
	se.mu.Lock()
	se.answer, se.work = answer, nil
	se.mu.Unlock()
	close(se.done)
}

// find returns the session of that token, or nil.
func (s *sessions) find(token uint64) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[token]
}

// all returns every session, in no order.
func (s *sessions) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*session, 0, len(s.open))
	for _, se := range s.open {
		list = append(list, se)
	}
	return list
}

func (s *sessions) forget(token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, token)
}

// await returns when the session is over. If ctx ends, which it does with the
// connection of the client, the session ends, too.
func (s *sessions) await(ctx context.Context, se *session) *shimpb.ExecResponse {
	se.claim.Stop()
	select {
	case <-se.done:
	case <-ctx.Done():
		se.cancel()
		<-se.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if se.answered {
		return se.answer
	}
	se.answered = true
	s.answered = append(s.answered, se.token)
	if len(s.answered) > answersKept {
		delete(s.open, s.answered[0])
		s.answered = s.answered[1:]
	}
	return se.answer
}

// stop ends all sessions and waits for them.
func (s *sessions) stop() {
	for _, se := range s.all() {
		se.claim.Stop()
		se.cancel()
	}
	s.running.Wait()
}

// pause stops all for an upgrade. Those that are over get their answer first.
func (s *sessions) pause() {
	for _, se := range s.all() {
		se.mu.Lock()
		work := se.work
		se.mu.Unlock()
		if work == nil {
			continue
		}
		work.pause()
		if work.over() {
			<-se.done
		}
	}
}

// resume undoes pause.
func (s *sessions) resume() {
	for _, se := range s.all() {
		se.mu.Lock()
		work := se.work
		se.mu.Unlock()
		if work != nil {
			work.resume()
		}
	}
}
