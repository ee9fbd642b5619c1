package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// atLeastOne wants one or more arguments; what names them.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("say which %s: %s", what, cmd.UseLine())
		}
		return nil
	}
}

// exactlyOne wants one argument; what names it.
func exactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("say which %s: %s", what, cmd.UseLine())
		case len(args) > 1:
			return fmt.Errorf("one %s at a time, not %s", what, strings.Join(args, " "))
		}
		return nil
	}
}

// podAndCommand wants a pod and what to run in it.
func podAndCommand(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("say which pod, and what to run in it: %s", cmd.UseLine())
	}
	return nil
}
