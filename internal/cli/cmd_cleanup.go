package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/home"
	"github.com/berth-run/berth/internal/nodeapi"
)

func cleanupCommand(a *app) *cobra.Command {
	var force, yes bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that berth made below its root",
		Long: `Remove everything that berth made for this --root: pods (killed, without grace),
images, volumes, logs, records, networks, cgroups, mounts and its processes.
Nothing of that stays behind. Other roots are not touched, and what others put
into the folders stays there and is named.

Pods that live must be stopped first; --force does without, and ends an agent
that does not answer.`,
		Example: `  berth cleanup
  berth cleanup --force
  berth cleanup --root /tmp/try -y`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.cleanup(cmd.Context(), force, yes || force) },
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "ask an agent that runs to leave, and don't ask you")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return c
}

func (a *app) cleanup(ctx context.Context, force, yes bool) error {
	socket := a.home.Socket()
	_, rootErr := os.Stat(a.home.Root)
	_, runErr := os.Stat(a.home.Run)
	if errors.Is(rootErr, os.ErrNotExist) && errors.Is(runErr, os.ErrNotExist) {
		fmt.Fprintf(a.out, "there is nothing of berth's at %s\n", a.root)
		return nil
	}
	client := nodeapi.NewClient(socket)
	defer client.Close()
	running, askErr := ask(ctx, client)
	switch {
	case askErr == nil:
		if err := a.fits(running); err != nil {
			return err
		}
		if !force {
			if err := a.nothingLives(ctx, client, running); err != nil {
				return err
			}
		}
	case errors.Is(askErr, nodeapi.ErrMute) && !force:
		return fmt.Errorf("%w; berth cleanup --force ends it", a.mute())
	}
	if !yes {
		if err := a.confirm(fmt.Sprintf("Remove all pods, images, volumes and logs at %s?", a.root)); err != nil {
			return err
		}
	}
	if askErr == nil {
		if err := leave(ctx, client); err != nil && !errors.Is(err, nodeapi.ErrCut) {
			return fmt.Errorf("cannot ask the agent (process %d) to leave: %w", running.PID, err)
		}
	}
	if errors.Is(askErr, nodeapi.ErrMute) {
		if err := a.home.EndOwner(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	for {
		ag, err := agent.New(ctx, a.config().ForCleanup())
		if errors.Is(err, home.ErrInUse) && time.Since(began) < patience {
			if force {
				_, err := ask(ctx, client)
				switch {
				case errors.Is(err, nodeapi.ErrMute) || time.Since(began) > leaveTime:
					// It hangs, or is busy with a pull, say.
					if err := a.home.EndOwner(ctx); err != nil {
						return err
					}
				case err == nil:
					_ = leave(ctx, client) // one that came meanwhile
				}
			}
			time.Sleep(pollEvery)
			continue
		}
		if errors.Is(err, home.ErrInUse) && !force {
			return fmt.Errorf("%w, and does not leave: berth cleanup --force ends it", err)
		}
		if err != nil {
			return err
		}
		left, err := ag.Cleanup(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "removed everything of berth's at %s\n", a.root)
		for _, path := range left {
			fmt.Fprintf(a.out, "left %s, which berth did not make\n", path)
		}
		return nil
	}
}

// leaveTime is how long an agent that cannot be talked to may take to leave before
// it is ended.
const leaveTime = 3 * time.Second

// leave asks an agent to leave.
func leave(ctx context.Context, client *nodeapi.Client) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	return client.Leave(ctx)
}

// nothingLives refuses when an agent has pods that live. One that has just begun
// has to look at them first.
func (a *app) nothingLives(ctx context.Context, client *nodeapi.Client, running nodeapi.Version) error {
	for deadline := time.Now().Add(settleTime); ; time.Sleep(pollEvery) {
		pods, err := client.Pods(ctx)
		if errors.Is(err, nodeapi.ErrCut) {
			return nil // it leaves by itself
		}
		if err != nil {
			return err
		}
		live, known := 0, true
		for i := range pods {
			if s := &pods[i].Status; !isTerminal(s) {
				live++
				known = known && s.Phase != ""
			}
		}
		switch {
		case live == 0:
			return nil
		case known || time.Now().After(deadline):
			return fmt.Errorf("an agent (process %d) runs %s on %s: stop them first, or say --force", running.PID, count(live, "pod"), a.root)
		}
	}
}

// confirm asks on the terminal; without one it refuses.
func (a *app) confirm(question string) error {
	in, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) { //nolint:gosec // a descriptor fits
		return errors.New("nobody is there to ask: say -y if you mean it")
	}
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		return errors.New("nothing was removed")
	}
	return nil
}
