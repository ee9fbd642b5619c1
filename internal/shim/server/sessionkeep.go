package server

import (
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// keepSessions puts the sessions, which are paused, into h.
func (s *Server) keepSessions(h *handover, p *packing) {
	for _, se := range s.sessions.all() {
		se.mu.Lock()
		work, answer := se.work, se.answer
		se.mu.Unlock()
		switch w := work.(type) {
		case *execution:
			h.Execs = append(h.Execs, w.keep(se))
		case *attachment:
			if k, ok := h.Containers[w.c.id]; ok && !se.cancelled() {
				a, err := w.keep(se.token, p)
				if err == nil {
					k.Attachments = append(k.Attachments, a)
					h.Containers[w.c.id] = k
					continue
				}
				if !errors.Is(err, os.ErrClosed) { // it is being ended
					p.errs = append(p.errs, err)
				}
			}
			answer = &shimpb.ExecResponse{}
		}
		if answer != nil {
			b, err := proto.Marshal(answer)
			p.errs = append(p.errs, err)
			h.Answers = append(h.Answers, keptAnswer{Token: se.token, Answer: b})
		}
	}
}

func (e *execution) keep(se *session) keptExec {
	k := keptExec{
		Token: se.token, PID: e.p.pid, Ticks: e.p.ticks, Group: e.group.path,
		TimedOut: e.timedOut.Load(), Cancelled: se.cancelled(),
	}
	if !e.deadline.IsZero() {
		k.Left = max(time.Until(e.deadline), 1)
	}
	return k
}

func (a *attachment) keep(token uint64, p *packing) (k keptAttachment, err error) {
	before := len(p.opened)
	defer func() {
		if err != nil {
			p.closeAfter(before)
		}
	}()
	k = keptAttachment{Token: token, Stdin: -1, Stdout: -1, Stderr: -1}
	if a.in != nil && !a.in.over() {
		k.Pending = a.in.pending
		if k.Stdin, err = p.dupOf(a.stdin); err != nil {
			return k, err
		}
	}
	if a.stdout != nil {
		if k.Stdout, err = p.dupOf(a.stdout); err != nil {
			return k, err
		}
	}
	if a.stderr != nil {
		k.Stderr, err = p.dupOf(a.stderr)
	}
	return k, err
}

// files makes files of the descriptors; nil: there is none.
func (k keptAttachment) files() []*os.File {
	files := make([]*os.File, 0, 3)
	for _, fd := range []int{k.Stdin, k.Stdout, k.Stderr} {
		var f *os.File
		if fd >= 0 {
			f = os.NewFile(uintptr(fd), "kept")
		}
		files = append(files, f)
	}
	return files
}

// rejoin lets the attachments that were handed over listen again. The returned
// function lets them go on, once the container's input is open.
func (c *container) rejoin(k *kept) (resume func()) {
	attachments := k.Attachments
	k.Attachments = nil
	all := make([]*attachment, len(attachments))
	errs := make([]error, len(attachments))
	for i, ka := range attachments {
		files := ka.files()
		all[i] = &attachment{c: c, stdin: files[0], stdout: files[1], stderr: files[2]}
		errs[i] = all[i].listen()
	}
	return func() {
		for i, a := range all {
			err := errs[i]
			if err == nil {
				err = a.feed(attachments[i].Pending)
			}
			if err != nil {
				c.srv.log.Warn("an attachment has ended with an upgrade", "id", c.id, "err", err)
				a.close()
				c.srv.sessions.over(attachments[i].Token, &shimpb.ExecResponse{})
				continue
			}
			c.srv.sessions.begin(attachments[i].Token, a)
		}
	}
}

// resumeSessions goes on with the execs that were handed over.
func (s *Server) resumeSessions(h *handover) {
	s.execNumber.Store(h.ExecNumber)
	for _, k := range h.Execs {
		e := &execution{srv: s, group: execGroupAt(k.Group), p: &process{pid: k.PID, ticks: k.Ticks}}
		if k.Left > 0 {
			e.deadline = time.Now().Add(k.Left)
		}
		e.timedOut.Store(k.TimedOut)
		if err := s.watchAgain(e.p); err != nil {
			s.log.Error("an exec is lost", "pid", k.PID, "err", err)
			s.sessions.over(k.Token, &shimpb.ExecResponse{Exit: &shimpb.ExitStatus{At: time.Now().UnixNano()}})
			continue
		}
		se := s.sessions.begin(k.Token, e)
		if k.Cancelled {
			se.cancel()
		}
	}
	for _, k := range h.Answers {
		var answer shimpb.ExecResponse
		if err := proto.Unmarshal(k.Answer, &answer); err != nil {
			s.log.Error("the end of an exec is lost", "err", err)
			continue
		}
		s.sessions.over(k.Token, &answer)
	}
	h.Execs, h.Answers = nil, nil
}

// watchAgain watches a process that a former program of this process started.
func (s *Server) watchAgain(p *process) error {
	var err error
	if p.pidfd, err = openPidfd(p.pid, p.ticks); err != nil {
		return fmt.Errorf("cannot find process %d: %w", p.pid, err)
	}
	p.findParent()
	return s.watchProcess(p, nil)
}
