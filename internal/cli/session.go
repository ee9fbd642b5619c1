package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/home"
	"github.com/berth-run/berth/internal/nodeapi"
)

// place says where an agent is to run if there is none yet.
type place int

const (
	here       place = iota // in this process, for as long as the session lasts
	background              // in a process of its own, which stays
)

const (
	// patience is how long to wait for an agent that starts or leaves.
	patience = 20 * time.Second
	// pollEvery is how often to look meanwhile.
	pollEvery = 10 * time.Millisecond
	// settleTime is how long to wait at most for the first statuses of pods that
	// a new agent took up.
	settleTime = 3 * time.Second
)

// session is a connection to the agent of the root.
type session struct {
	app    *app
	client *nodeapi.Client
	own    *local // the agent in this process; nil: it is another's
	// trouble is what keeps the agent from doing anything to containers; empty: nothing.
	trouble string
	// dismissed says that the agent was asked to leave: nobody is to take over.
	dismissed bool
}

// errRemoved says that there is nothing left to go on with.
var errRemoved = errors.New("the pods were removed by berth cleanup")

// connect finds the agent of the root, or brings one up. An agent that was started with
// other flags makes room for one with these, unless somebody needs it.
func (a *app) connect(ctx context.Context, where place) (*session, error) {
	path := a.home.Socket()
	client := nodeapi.NewClient(path)
	deadline := time.Now().Add(patience)
	for {
		running, err := ask(ctx, client)
		if err == nil {
			if unfit := a.fits(running); unfit != nil {
				leaves, err := client.LeaveIdle(ctx)
				if errors.Is(err, nodeapi.ErrCut) {
					leaves, err = true, nil
				}
				if err != nil || !leaves || time.Now().After(deadline) {
					return nil, errors.Join(unfit, err)
				}
				time.Sleep(pollEvery)
				continue
			}
			return &session{app: a, client: client, trouble: running.Trouble}, nil
		}
		if errors.Is(err, nodeapi.ErrMute) {
			return nil, a.mute()
		}
		if a.begun && !a.home.Exists() {
			return nil, errRemoved
		}
		var own *local
		if where == background {
			err = spawn(ctx, a, client)
		} else {
			own, err = startLocal(ctx, a)
		}
		switch {
		case err == nil && own != nil:
			return &session{app: a, client: client, own: own}, nil
		case err == nil:
			continue
		case !errors.Is(err, home.ErrInUse), ctx.Err() != nil:
			return nil, err
		case time.Now().After(deadline):
			return nil, fmt.Errorf("%w, and doesn't answer on %s: try again, or end that process (its pods run on)", err, path)
		}
		// It is starting, or about to leave.
		time.Sleep(pollEvery)
	}
}

// connectSettled is connect for those who ask what there is: a new agent first
// has to look at the pods it took up.
func (a *app) connectSettled(ctx context.Context) (*session, error) {
	if err := a.mustHaveRoot(ctx); err != nil {
		return nil, err
	}
	s, err := a.connect(ctx, here)
	if err != nil || s.own == nil {
		return s, err
	}
	deadline := time.Now().Add(settleTime)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		settled := true
		for _, p := range s.own.agent.Pods() {
			settled = settled && p.Status.Phase != ""
		}
		if settled {
			break
		}
		time.Sleep(pollEvery)
	}
	return s, nil
}

// noteTrouble tells those who look at pods why the pods may be in another state.
func (s *session) noteTrouble() {
	if s.trouble != "" {
		s.app.note("what is shown may be out of date: %s", s.trouble)
	}
}

// mustHaveRoot refuses to look for something where no agent ever was: that would
// make a root of what is most likely a typing error.
func (a *app) mustHaveRoot(ctx context.Context) error {
	if a.begun || a.home.Exists() {
		return nil
	}
	client := nodeapi.NewClient(a.home.Socket())
	defer client.Close()
	if _, err := ask(ctx, client); err == nil || errors.Is(err, nodeapi.ErrMute) {
		return nil // connect has more to say
	}
	return fmt.Errorf("there is nothing of berth's at %s: no pod was run there and no image pulled; look whether --root is right", a.root)
}

// ask asks an agent who it is.
func ask(ctx context.Context, client *nodeapi.Client) (nodeapi.Version, error) {
	limited, cancel := context.WithTimeout(ctx, nodeapi.AnswerTime)
	defer cancel()
	v, err := client.Version(limited)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nodeapi.ErrMute
	}
	return v, err
}

// muteError says which agent does not answer, and what to do.
type muteError struct{ text string }

func (e *muteError) Error() string { return e.text }
func (e *muteError) Unwrap() error { return nodeapi.ErrMute }

// mute says which agent does not answer.
func (a *app) mute() error {
	pid := a.home.Owner()
	if pid == "" {
		return &muteError{fmt.Sprintf("the agent of %s does not answer, and which process it is cannot be seen: try again, or look at %s",
			a.root, a.home.AgentLog())}
	}
	return &muteError{fmt.Sprintf("the agent of %s (process %s) does not answer: it may be stopped (kill -CONT %s lets it go on) or hang (kill -KILL %s ends it; pods run on, and the next berth command goes on with them)",
		a.root, pid, pid, pid)}
}

// explain adds to an error which agent does not answer, if that is what it is about.
func (a *app) explain(err error) error {
	var explained *muteError
	switch {
	case !errors.Is(err, nodeapi.ErrMute) || errors.As(err, &explained):
		return err
	case err == nodeapi.ErrMute: //nolint:errorlint // there is no more to say
		return a.mute()
	}
	return errors.Join(err, a.mute())
}

// fits says why the agent at the socket is not the one that is meant.
func (a *app) fits(running nodeapi.Version) error {
	if a.cidr != "" && running.CIDR != "" && a.ranges.String() != running.CIDR {
		return usageError("--network-cidr is %s, and the agent that runs (process %d) uses %s: leave it out, or stop all pods first",
			a.cidr, running.PID, running.CIDR)
	}
	if a.podPids != 0 && running.PodPids != 0 && a.podPids != running.PodPids {
		return usageError("--pod-pids-limit is %d, and the agent that runs (process %d) was started with %d: leave it out, or stop all pods first",
			a.podPids, running.PID, running.PodPids)
	}
	if a.handlers != nil {
		used, err := agent.RuntimeHandlers(a.home)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(a.handlers, used, func(x, y cri.RuntimeHandler) bool { return x.String() == y.String() }) {
			return usageError("--runtime-handler is %s, and the agent that runs (process %d) has %s: leave it out, or stop all pods first",
				handlersText(a.handlers), running.PID, handlersText(used))
		}
	}
	return nil
}

// handlersText is how a message speaks of handlers.
func handlersText(list []cri.RuntimeHandler) string {
	if len(list) == 0 {
		return noHandlers
	}
	var texts []string
	for _, h := range list {
		texts = append(texts, h.String())
	}
	return strings.Join(texts, " ")
}

// close ends the session, and with it an agent of this process. Pods run on; if
// any are left that live, a background agent takes over.
func (s *session) close(ctx context.Context) error {
	s.client.Close()
	if s.own == nil {
		return nil
	}
	live := living(s.own.agent.Pods())
	err := s.own.stop()
	s.own = nil
	if live > 0 && err == nil && !s.dismissed {
		err = spawn(ctx, s.app, s.client)
		if errors.Is(err, home.ErrInUse) {
			err = nil // somebody else took over
		}
	}
	return err
}
