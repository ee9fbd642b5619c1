package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth/internal/agent"
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
	// dismissed says that the agent was asked to leave: nobody is to take over.
	dismissed bool
}

// errRemoved says that there is nothing left to go on with.
var errRemoved = errors.New("the pods were removed by berth cleanup")

// connect finds the agent of the root, or brings one up.
func (a *app) connect(ctx context.Context, where place) (*session, error) {
	path, err := a.config().Socket()
	if err != nil {
		return nil, err
	}
	client := nodeapi.NewClient(path)
	deadline := time.Now().Add(patience)
	for {
		if _, err := ask(ctx, client); err == nil {
			return &session{app: a, client: client}, nil
		}
		if a.begun && !rootExists(a) {
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
		case !errors.Is(err, agent.ErrInUse), ctx.Err() != nil:
			return nil, err
		case time.Now().After(deadline):
			return nil, fmt.Errorf("%w, and doesn't answer on %s", err, path)
		}
		// It is starting, or about to leave.
		time.Sleep(pollEvery)
	}
}

// connectSettled is connect for those who ask what there is: a new agent first
// has to look at the pods it took up.
func (a *app) connectSettled(ctx context.Context) (*session, error) {
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

// ask asks an agent who it is.
func ask(ctx context.Context, client *nodeapi.Client) (nodeapi.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return client.Version(ctx)
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
		if errors.Is(err, agent.ErrInUse) {
			err = nil // somebody else took over
		}
	}
	return err
}
