package cli

import (
	"errors"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/home"
)

const (
	// lookAround is how often a background agent looks whether it is needed.
	lookAround = 2 * time.Second
	// linger is how long it stays when it isn't: somebody may ask something.
	linger = 30 * time.Second
)

// agentCommand is the background process of berth run --detach. It leaves by
// itself when no pod lives and nobody has asked anything for a while.
func agentCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "agent",
		Short:  "Drive the pods of a root in the background (berth starts this by itself)",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.logLevel == "" {
				if err := a.log.setLevel("info"); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			l, err := startLocal(ctx, a)
			if errors.Is(err, home.ErrInUse) {
				return &exitError{code: exitInUse, cause: err}
			}
			if err != nil {
				return err
			}
			a.log.logger.Info("agent started")
			tick := time.NewTicker(lookAround)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
				case <-l.left:
				case <-l.ended:
				case <-tick.C:
					idle := l.server.Idle()
					if idle.IsZero() || time.Since(idle) < linger || living(l.agent.Pods()) > 0 {
						continue
					}
				}
				err := l.stop()
				a.log.logger.Info("agent leaves")
				return err
			}
		},
	}
}
