package cli

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/nodeapi"
	"github.com/berth-run/berth/internal/socket"
	"github.com/berth-run/berth/internal/version"
)

// local is an agent in this process, and its API.
type local struct {
	agent  *agent.Agent
	server *nodeapi.Server
	// left is closed when somebody asked the agent to leave.
	left <-chan struct{}
	// ended is closed when the agent runs no more, be it by its own fault.
	ended  <-chan struct{}
	stop   func() error
	socket string
}

// startLocal brings up an agent of this process, which takes up the pods of an
// earlier one. The error is home.ErrInUse if there is an agent already.
func startLocal(ctx context.Context, a *app) (*local, error) {
	path := a.home.Socket()
	ag, err := agent.New(ctx, a.config())
	if err != nil {
		return nil, err
	}
	l := &local{agent: ag, socket: path}
	left := make(chan struct{})
	l.left = left
	l.server, err = nodeapi.New(nodeapi.Config{
		Agent: ag,
		Info:  nodeapi.Version{Version: version.String(), PID: os.Getpid(), Root: a.root, CIDR: ag.Ranges().String(), PodPids: ag.PodPids()},
		Leave: sync.OnceFunc(func() { close(left) }),
		Log:   a.log.logger,
	})
	if err != nil {
		return nil, errors.Join(err, ag.Close())
	}
	listener, err := socket.Listen(path)
	if err != nil {
		return nil, errors.Join(err, ag.Close())
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	group, run := errgroup.WithContext(run)
	group.Go(func() error { return ag.Run(run) })
	group.Go(func() error {
		defer listener.Close()
		if err := l.server.Serve(run, listener); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	ended := make(chan struct{})
	l.ended = ended
	var result error
	go func() {
		result = group.Wait()
		close(ended)
	}()
	l.stop = sync.OnceValue(func() error {
		cancel()
		<-ended
		return errors.Join(result, ag.Close())
	})
	if _, err := ag.Adopt(); err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}
