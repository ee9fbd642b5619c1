package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/nodeapi"
)

const (
	// lastLines is how long to wait for what containers wrote at their end.
	lastLines = 5 * time.Second
	// handOver is how long to look for an agent that stays, when those that are
	// found go away again.
	handOver = time.Minute
	// firstStatus is how long the status of a pod may take that was sent before what
	// is here already.
	firstStatus = time.Second
	// tickEvery is how often a view may redraw.
	tickEvery = frameTime
)

// run follows pods from their start to the end that was asked for. Its fields
// belong to the goroutine of run; the others send it what they hear.
type run struct {
	app  *app
	opts runOptions
	view view

	id      string // tells this run from others that follow the same pods
	session *session
	board   *board

	updates chan agent.Update
	lines   chan nodeapi.LogLine

	stopping   os.Signal // what made us stop the pods; nil: nothing
	timedOut   bool
	unfinished map[types.UID]string // what pods were not done by when time was up
	stopAsked  int                  // how often
	fates      map[types.UID]fate
}

func newRun(a *app, o runOptions, v view) *run {
	return &run{
		app: a, opts: o, view: v, id: uuid.NewString(), fates: make(map[types.UID]fate),
		updates: make(chan agent.Update, 64), lines: make(chan nodeapi.LogLine, 256),
	}
}

// run asks for objects and returns when the pods are where they were to get.
func (r *run) run(ctx context.Context, o agent.Objects) (err error) {
	caught, signals := make(chan os.Signal, 4), make(chan os.Signal, 4)
	// With SIGPIPE caught, a reader that left doesn't kill us: the pods are
	// stopped first. See readerLeft.
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer signal.Stop(caught)

	ctx, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	listening.Go(func() { requests(ctx, caught, signals) })
	defer func() { cancel(); listening.Wait() }()
	refs, asked, watching, err := r.begin(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := r.session.close(context.WithoutCancel(ctx)); closeErr != nil {
			r.app.complain(closeErr)
			if err == nil {
				err = &exitError{code: exitFailed}
			}
		}
	}()
	r.board = newBoard(o.Pods, refs, asked)
	r.tellOthers(ctx)
	if !r.opts.follow {
		cancel()
		watching.stop()
		r.tellBackground()
		return nil
	}
	r.view.begin(r.board)
	defer r.view.end()
	return r.loop(ctx, cancel, watching, signals)
}

// begin finds an agent and hands it the objects, at a time that is told: what
// happened before is nothing of this run's.
func (r *run) begin(ctx context.Context, o agent.Objects) (refs []agent.Ref, asked time.Time, _ *streams, err error) {
	where := here
	if r.opts.leave {
		where = background
	}
	o.Await = !r.opts.leave
	for deadline := time.Now().Add(handOver); ; {
		session, err := r.app.connect(ctx, where)
		if err != nil {
			return nil, time.Time{}, nil, err
		}
		r.session = session
		watching := r.watch(ctx)
		asked := time.Now()
		refs, err := session.client.Apply(ctx, o, r.id)
		if err == nil {
			r.warnUnkept(ctx)
			return refs, asked, watching, nil
		}
		watching.stop()
		err = errors.Join(err, session.close(ctx))
		if !errors.Is(err, nodeapi.ErrCut) || time.Now().After(deadline) {
			return nil, time.Time{}, nil, fmt.Errorf("cannot run the pods: %w", err)
		}
		// It was about to leave when it was found.
		time.Sleep(pollEvery)
	}
}

// warnUnkept says when the pods were taken, but can't be recorded.
func (r *run) warnUnkept(ctx context.Context) {
	err := r.session.client.Keep(ctx)
	var said *nodeapi.Error
	if errors.As(err, &said) { // an agent that went away is noticed elsewhere
		r.app.note("warning: the pods can't be recorded, and are ended and forgotten when berth ends before there is room: %s", said.Message)
	}
}

// tellOthers says which pods of an earlier run live on.
func (r *run) tellOthers(ctx context.Context) {
	if r.session.own == nil {
		return
	}
	var names []string
	for _, p := range r.settledOthers(ctx) {
		if !stopping(p) && p.Status.Phase != "" && !isTerminal(&p.Status) {
			names = append(names, podName(p.Namespace, p.Name))
		}
	}
	if len(names) == 0 {
		return
	}
	shown := strings.Join(names[:min(len(names), 5)], ", ")
	if more := len(names) - 5; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	r.app.note("%s of an earlier run %s on: %s (berth ps; berth stop ends them)",
		count(len(names), "pod"), map[bool]string{true: "goes", false: "go"}[len(names) == 1], shown)
}

// settledOthers are the pods that are none of this run's, once the new agent has
// looked at them.
func (r *run) settledOthers(ctx context.Context) []*corev1.Pod {
	for deadline := time.Now().Add(settleTime); ; time.Sleep(pollEvery) {
		pods := slices.DeleteFunc(r.session.own.agent.Pods(), func(p *corev1.Pod) bool { return r.board.byUID[p.UID] != nil })
		unknown := slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Status.Phase == "" })
		if !unknown || ctx.Err() != nil || time.Now().After(deadline) {
			return pods
		}
	}
}

func (r *run) tellBackground() {
	var names []string
	for _, p := range r.board.pods {
		names = append(names, p.name)
	}
	r.app.note("%s in the background: %s", map[bool]string{true: "the pod runs", false: "the pods run"}[len(names) == 1], strings.Join(names, ", "))
}

// streams are the goroutines that hear from the agent.
type streams struct {
	group  errgroup.Group
	cancel context.CancelFunc
	// cut gets an error when the agent goes away; logsDone is closed when all
	// lines were told.
	cut      chan error
	logsDone chan struct{}
}

func (s *streams) stop() {
	s.cancel()
	_ = s.group.Wait()
}

// watch begins to listen to the agent and returns when nothing is missed any
// more, or the agent does not answer.
func (r *run) watch(ctx context.Context) *streams {
	ctx, cancel := context.WithCancel(ctx)
	s := &streams{cancel: cancel, cut: make(chan error, 2), logsDone: make(chan struct{})}
	begun := make(chan struct{})
	client := r.session.client
	var uids []types.UID
	if r.board != nil {
		uids = r.board.uids()
	}
	s.group.Go(func() error {
		stands := false
		err := client.WatchAs(ctx, r.id, uids, func() { stands = true; close(begun) }, func(u agent.Update, _ int) error {
			select {
			case r.updates <- u:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if !stands {
			close(begun)
		}
		if ctx.Err() == nil {
			s.cut <- err
		}
		return nil
	})
	<-begun
	return s
}

// followLogs begins to listen to the containers, after the lines that seen knows.
func (r *run) followLogs(ctx context.Context, s *streams, seen *seenLines) {
	if r.opts.noLogs || r.opts.until == "ready" && r.opts.output == "auto" && r.opts.detach {
		close(s.logsDone)
		return
	}
	client, uids := r.session.client, r.board.uids()
	skip := seen.again()
	s.group.Go(func() error {
		defer close(s.logsDone)
		err := client.Logs(ctx, nodeapi.LogsRequest{UIDs: uids}, func(l nodeapi.LogLine) error {
			if skip.knows(l) {
				return nil
			}
			select {
			case r.lines <- l:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil && ctx.Err() == nil {
			s.cut <- err
		}
		return nil
	})
}

// loop shows what comes, until the pods are where they were to get.
func (r *run) loop(ctx context.Context, cancel context.CancelFunc, s *streams, signals <-chan os.Signal) error {
	seen := newSeenLines()
	defer func() {
		cancel()
		s.stop()
	}()
	r.followLogs(ctx, s, seen)
	var timeout <-chan time.Time
	if r.opts.timeout > 0 {
		t := time.NewTimer(r.opts.timeout)
		defer t.Stop()
		timeout = t.C
	}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	var left, ended <-chan struct{}
	own := func() {
		left, ended = nil, nil
		if r.session.own != nil {
			left, ended = r.session.own.left, r.session.own.ended
		}
	}
	own()
	logsDone := s.logsDone
	for {
		if done := r.reached(); done {
			r.drain(logsDone, seen)
			r.view.flush()
			if err := r.told(ctx); err != nil {
				return err
			}
			return r.result()
		}
		if len(r.lines) == 0 && len(r.updates) == 0 {
			r.view.flush()
		}
		select {
		case u := <-r.updates:
			r.take(u)
		case l := <-r.lines:
			r.line(l, seen)
		case <-tick.C:
			r.view.tick(time.Now())
		case sig := <-signals:
			if sig == syscall.SIGPIPE && (r.stopping != nil || !readerLeft(r.app.out, r.app.err)) {
				continue
			}
			if err := r.stop(ctx, sig); err != nil {
				return err
			}
		case <-timeout:
			timeout = nil
			if r.stopping != nil {
				continue // the pods end already
			}
			r.timedOut = true
			r.noteUnfinished()
			if r.opts.leave {
				return r.result()
			}
			r.view.note("time is up after " + r.opts.timeout.String() + "; stopping the pods, which stay listed (berth ps, logs, describe; berth rm removes them)")
			r.tellBlockers()
			if err := r.release(ctx, nil); err != nil {
				return err
			}
		case <-left:
			r.session.dismissed = true
			return errors.New("the agent was asked to leave, by berth cleanup: its pods are removed")
		case <-ended:
			return errors.Join(errors.New("the agent in this process ended; its pods run on, and the next berth command goes on with them"), r.session.close(ctx))
		case err := <-s.cut:
			s.stop()
			if r.session.own != nil {
				return fmt.Errorf("the agent in this process does not answer: %w", err)
			}
			next, err := r.takeOver(ctx)
			if err != nil {
				return err
			}
			s = next
			r.followLogs(ctx, s, seen)
			logsDone = s.logsDone
			own()
			if r.stopping != nil || r.timedOut {
				// The agent may have left before it heard.
				if err := r.release(ctx, nil); err != nil {
					return err
				}
			}
		}
	}
}

func (r *run) line(l nodeapi.LogLine, seen *seenLines) {
	p := r.board.byUID[l.UID]
	if p == nil {
		return
	}
	// Lines and statuses come on different ways. How the pod is comes before what it
	// wrote: the agent has told that before it sent a line.
	for limit := time.After(firstStatus); p.status == nil && !p.gone && limit != nil; {
		select {
		case u := <-r.updates:
			r.take(u)
		case <-limit:
			limit = nil
		}
	}
	seen.add(l)
	r.view.log(p, l)
}

// drain shows what is still on its way from the containers.
func (r *run) drain(logsDone <-chan struct{}, seen *seenLines) {
	limit := time.After(lastLines)
	if !r.ended() {
		limit = time.After(0) // they go on writing
	}
	for {
		select {
		case l := <-r.lines:
			r.line(l, seen)
			continue
		default:
		}
		select {
		case l := <-r.lines:
			r.line(l, seen)
		case <-logsDone:
			for {
				select {
				case l := <-r.lines:
					r.line(l, seen)
				default:
					return
				}
			}
		case <-limit:
			return
		}
	}
}

// takeOver finds the agent that follows one that went away, or becomes it. Those
// that it finds may be about to leave as well.
func (r *run) takeOver(ctx context.Context) (*streams, error) {
	r.app.begun = true
	where := here
	if r.opts.leave {
		where = background
	}
	for deadline := time.Now().Add(handOver); ; {
		r.session.client.Close()
		session, err := r.app.connect(ctx, where)
		if errors.Is(err, errRemoved) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("the agent went away, and no other can be started: %w", err)
		}
		r.session = session
		s := r.watch(ctx)
		pods, err := session.client.Pods(ctx)
		if err == nil {
			if session.own != nil {
				r.view.note("the agent went away; this process goes on with its pods")
			}
			r.missed(pods)
			return s, nil
		}
		s.stop()
		if !errors.Is(err, nodeapi.ErrCut) || session.own != nil || time.Now().After(deadline) {
			return nil, fmt.Errorf("cannot find the pods again: %w", err)
		}
		time.Sleep(pollEvery)
	}
}

// missed tells the end of pods that are not among those that are left.
func (r *run) missed(left []corev1.Pod) {
	for _, p := range r.board.pods {
		known := slices.ContainsFunc(left, func(q corev1.Pod) bool { return q.UID == p.ref.UID })
		if !known && !p.gone {
			u := agent.Update{Time: time.Now(), Pod: p.ref, Kind: agent.GoneUpdate}
			r.take(u)
		}
	}
}

// ended says whether all pods are over.
func (r *run) ended() bool { return r.board.all((*podState).over) }

// reached says whether there is nothing left to wait for.
func (r *run) reached() bool {
	switch {
	case r.stopping != nil || r.timedOut:
		return r.board.all(r.letGo)
	case r.opts.until == "ready":
		return r.board.all(func(p *podState) bool { return p.ready() || p.over() })
	}
	return r.ended()
}

// result is what the run comes to.
func (r *run) result() error {
	switch {
	case r.stopping != nil:
		code := exitSignal
		if sig, ok := r.stopping.(syscall.Signal); ok {
			code += int(sig)
		}
		return &exitError{code: code}
	case r.timedOut:
		if r.opts.leave {
			r.view.note("time is up after " + r.opts.timeout.String() + "; the pods go on in the background")
			r.tellBlockers()
		}
		return &exitError{code: exitTimeout}
	case r.opts.until == "ready":
		// A pod that has done its work counts as well.
		if r.board.all(func(p *podState) bool {
			return p.ready() || p.status != nil && p.status.Phase == corev1.PodSucceeded
		}) {
			return nil
		}
		r.tellBlockers()
	}
	taken := r.tellTaken()
	if code := exitCodeOf(r.board.pods); code != 0 {
		return &exitError{code: code}
	}
	if taken {
		return &exitError{code: exitFailed}
	}
	return nil
}

// tellBlockers says what is not ready, and why.
func (r *run) tellBlockers() {
	var lines []string
	for _, p := range r.board.pods {
		done := r.opts.until == "done" && p.over() || p.status != nil && p.status.Phase == corev1.PodSucceeded
		if !done && (r.opts.until == "done" || !p.ready()) {
			lines = append(lines, blockers(p, r.opts.until == "done")...)
		}
	}
	if len(lines) > 0 {
		word := map[string]string{"ready": "not ready", "done": "not done"}[r.opts.until]
		r.view.note(word + ":\n  " + strings.Join(lines, "\n  "))
	}
}
