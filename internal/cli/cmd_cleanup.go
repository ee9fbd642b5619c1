package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/nodeapi"
)

func cleanupCommand(a *app) *cobra.Command {
	var force, yes bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that berth made below its root",
		Long: `Remove everything that berth made for this --root: pods (killed, without grace),
images, volumes, logs, records, networks, cgroups, mounts and its processes.
Nothing stays behind. Other roots are not touched.

An agent that runs must be stopped first; --force asks it to leave.`,
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

// rootExists says whether an agent has worked on the root, and nobody cleaned it
// up.
func rootExists(a *app) bool {
	_, err := os.Stat(filepath.Join(a.root, "berth.db"))
	return err == nil
}

func (a *app) cleanup(ctx context.Context, force, yes bool) error {
	socket, err := a.config().Socket()
	if err != nil {
		return err
	}
	_, rootErr := os.Stat(a.root)
	_, runErr := os.Stat(filepath.Dir(socket))
	if errors.Is(rootErr, os.ErrNotExist) && errors.Is(runErr, os.ErrNotExist) {
		fmt.Fprintf(a.out, "there is nothing of berth's at %s\n", a.root)
		return nil
	}
	if err := looksOurs(a.root); err != nil {
		return err
	}
	client := nodeapi.NewClient(socket)
	defer client.Close()
	running, askErr := ask(ctx, client)
	if askErr == nil && !force {
		return fmt.Errorf("an agent (process %d) runs on %s: stop it first, or say --force", running.PID, a.root)
	}
	if !yes {
		if err := a.confirm(fmt.Sprintf("Remove all pods, images, volumes and logs at %s?", a.root)); err != nil {
			return err
		}
	}
	if askErr == nil {
		if err := client.Leave(ctx); err != nil && !errors.Is(err, nodeapi.ErrCut) {
			return fmt.Errorf("cannot ask the agent (process %d) to leave: %w", running.PID, err)
		}
	}
	deadline := time.Now().Add(patience)
	for {
		ag, err := agent.New(ctx, a.config())
		if errors.Is(err, agent.ErrInUse) && (force || askErr != nil) && time.Now().Before(deadline) {
			if force {
				_ = client.Leave(ctx) // one that came meanwhile
			}
			time.Sleep(pollEvery)
			continue
		}
		if err != nil {
			return err
		}
		if err := ag.Cleanup(ctx); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "removed everything at %s\n", a.root)
		return nil
	}
}

// looksOurs refuses to remove a folder that berth did not make.
func looksOurs(root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at the root: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case "agent.lock", "berth.db", "images", "pods", "logs":
			return nil
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return fmt.Errorf("%s is not empty and doesn't look like a root of berth's: it is left alone", root)
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
