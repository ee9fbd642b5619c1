// Package cli is the berth command: it reads the command line, asks a node agent
// through its API, and shows the answers to people. One file a command,
// cmd_<command>.go. What is chosen (exit codes, what to show) is in pure
// functions; commands only put them together.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/home"
	"github.com/berth-run/berth/internal/version"
)

// Exit codes of berth itself; berth run and berth exec pass on those of
// containers.
const (
	exitFailed  = 1   // something could not be done, or pods failed
	exitUsage   = 2   // the command line or a manifest is wrong; nothing was started
	exitTimeout = 124 // as timeout(1)
	exitSignal  = 128 // and the number of the signal that ended berth
)

// exitError ends berth with a code. A nil cause was told already.
type exitError struct {
	code  int
	cause error
}

func (e *exitError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.cause.Error()
}

func (e *exitError) Unwrap() error { return e.cause }

func usageError(format string, args ...any) error {
	return &exitError{code: exitUsage, cause: fmt.Errorf(format, args...)}
}

// app is what all commands share.
type app struct {
	in       io.Reader
	out, err io.Writer

	root, run           string
	cidr                string
	ranges              agent.Ranges // what cidr says
	podPids             int64
	handlerFlags        []string
	handlers            []cri.RuntimeHandler // what those say; nil: nothing
	logLevel, logFormat string

	home    home.Home // what root and run name; not for commands that need no root
	running bool      // the command line was understood
	begun   bool      // there was an agent already: without its root, there is nothing to go on with
	log     *logging
}

// Main runs one command and returns berth's exit code.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, err: errOut}
	written := &output{w: out, tell: a.complain}
	a.out = written
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(written)
	root.SetErr(errOut)
	cmd, err := root.ExecuteC()
	if written.failed() && (err == nil || errors.Is(err, errOutput)) {
		return exitFailed
	}
	if err == nil {
		return 0
	}
	if a.running {
		err = a.explain(err)
	}
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		if exit.cause != nil {
			a.complain(exit.cause)
		}
		return exit.code
	case !a.running:
		a.complain(err)
		fmt.Fprintf(errOut, "Try %s --help.\n", cmd.CommandPath())
		return exitUsage
	}
	a.complain(err)
	return exitFailed
}

// complain tells an error, each line of it with berth's name.
func (a *app) complain(err error) {
	for line := range strings.SplitSeq(strings.TrimRight(err.Error(), "\n"), "\n") {
		fmt.Fprintf(a.err, "berth: %s\n", line)
	}
}

// note tells something that is good to know.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.err, "berth: "+format+"\n", args...)
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Run Kubernetes Pods on this machine, without a cluster",
		Long: `berth runs Kubernetes Pods on one Linux machine: no cluster, no daemon.

Begin with:

  berth run pod.yaml          run the pods of a file and watch them
  berth ps                    what runs
  berth describe POD          why it is as it is, and what happened
  berth logs POD              what it says
  berth stop POD              end it

Each root has one agent: that of the first berth run, or one in the background. A
command that it does not answer gives up after five to ten seconds and says what to
do; what it has begun to show, it goes on to show.

berth needs root: it makes namespaces, mounts, cgroups and networks.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.complete(); err != nil {
				return err
			}
			a.running = true
			if uid := os.Geteuid(); needsRoot(cmd) && uid != 0 {
				return notRoot(cmd, uid)
			}
			if needsRoot(cmd) {
				if own := cmd.Annotations[ownRoot]; own != "" && !cmd.Flags().Changed("root") {
					a.root = own
				}
				if err := a.findHome(); err != nil {
					return &exitError{code: exitUsage, cause: err}
				}
			}
			if slices.Contains([]string{"run", "agent", "cri"}, cmd.Name()) {
				// Later, each pod would fail for it again and again.
				if err := a.config().CheckCIDR(); err != nil {
					return &exitError{code: exitUsage, cause: err}
				}
			}
			return nil
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&a.root, "root", home.DefaultRoot, "folder of images, volumes, logs and records; agents of different roots don't disturb each other")
	f.StringVar(&a.run, "run", "", "folder of sockets and other things that end with the machine (default by --root: /run/berth…)")
	f.StringVar(&a.cidr, "network-cidr", "", "range of the pods' addresses, such as 10.99.0.0/16, or one of each family, such as 10.99.0.0/16,fd00:99::/64 (default that in use, else by --root)")
	f.Int64Var(&a.podPids, "pod-pids-limit", 0, "processes and threads that each pod may have at once, -1 for no limit (default as the agent before, else no limit)")
	f.StringArrayVar(&a.handlerFlags, "runtime-handler", nil, "NAME=/path/of/oci-runtime[,OPTION[=VALUE]...]: runs the pods whose runtime class is NAME; may be repeated, none for none (default as the agent before; berth cri: none)")
	f.StringVar(&a.logLevel, "log-level", "", "what the agent says of itself: debug, info, warn, error (default warn; info in the background)")
	f.StringVar(&a.logFormat, "log-format", "text", "how it says it: text or json")
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(helpCommand(root))
	root.Version = version.String()
	root.SetVersionTemplate(versionLine())
	root.AddGroup(
		&cobra.Group{ID: "pods", Title: "Pods:"},
		&cobra.Group{ID: "node", Title: "This machine:"},
	)
	for _, group := range []struct {
		id       string
		commands []func(*app) *cobra.Command
	}{
		{"pods", []func(*app) *cobra.Command{runCommand, psCommand, describeCommand, logsCommand, execCommand, stopCommand, rmCommand, validateCommand}},
		{"node", []func(*app) *cobra.Command{imageCommand, criCommand, cleanupCommand, completionCommand, versionCommand, agentCommand}},
	} {
		for _, make := range group.commands {
			c := make(a)
			c.GroupID = group.id
			withoutFlags(c)
			root.AddCommand(c)
		}
	}
	return root
}

// flagError says what a time looks like to those who gave a number.
func flagError(_ *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) || bad.GetFlag().Value.Type() != "duration" {
		return err
	}
	example := "90s"
	if _, err := strconv.ParseFloat(bad.GetValue(), 64); err == nil {
		example = bad.GetValue() + "s"
	}
	return fmt.Errorf("--%s is %q, want a time such as %s", bad.GetFlag().Name, bad.GetValue(), example)
}

// helpCommand is for those who type berth help run instead of berth run --help.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:         "help [COMMAND]",
		Short:       "Explain berth or a command",
		GroupID:     "node",
		Annotations: map[string]string{withoutRoot: "true"},
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || c == nil || c == root && len(rest) > 0 {
				return usageError("there is no command %q", strings.Join(args, " "))
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

// withoutFlags leaves "[flags]" out of the usage of a command and those below it.
func withoutFlags(c *cobra.Command) {
	c.DisableFlagsInUseLine = true
	for _, sub := range c.Commands() {
		withoutFlags(sub)
	}
}

// ownRoot names the root of commands that have another one by default.
const ownRoot = "own-root"

// withoutRoot marks commands that anybody may use.
const withoutRoot = "without-root"

func needsRoot(cmd *cobra.Command) bool {
	if cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd {
		return false // its flags are those of the command that is completed, and read later
	}
	for c := cmd; c != nil; c = c.Parent() {
		if c.Annotations[withoutRoot] != "" {
			return false
		}
	}
	return cmd.HasParent() // berth itself only shows its help
}

func notRoot(cmd *cobra.Command, uid int) error {
	return fmt.Errorf("%s needs root (it makes namespaces, mounts, cgroups and networks) and runs as uid %d: try sudo %s",
		cmd.CommandPath(), uid, cmd.UseLine())
}

// noHandlers is what --runtime-handler is given for no handler at all.
const noHandlers = "none"

// complete checks the flags that all commands have.
func (a *app) complete() (err error) {
	if a.cidr != "" {
		if a.ranges, err = agent.ParseRanges(a.cidr); err != nil {
			return err
		}
	}
	if a.podPids < agent.NoLimit {
		return fmt.Errorf("--pod-pids-limit is %d, want a number of processes, or -1 for no limit", a.podPids)
	}
	switch {
	case len(a.handlerFlags) == 1 && a.handlerFlags[0] == noHandlers:
		a.handlers = []cri.RuntimeHandler{}
	case len(a.handlerFlags) > 0:
		if a.handlers, err = agent.ParseRuntimeHandlers(a.handlerFlags); err != nil {
			return err
		}
	}
	a.log, err = newLogging(a.err, a.logLevel, a.logFormat)
	return err
}

// findHome looks which folders are meant. From here on the flags name them by
// paths that hold everywhere.
func (a *app) findHome() (err error) {
	if a.home, err = home.Find(a.root, a.run); err != nil {
		return err
	}
	a.root, a.run = a.home.Root, a.home.Run
	return nil
}

// config is that of an agent in this process.
func (a *app) config() agent.Config {
	return agent.Config{
		Root: a.root, Run: a.run, CIDR: a.ranges.V4, CIDR6: a.ranges.V6, PodPids: a.podPids, Handlers: a.handlers,
		Log: a.log.logger,
	}
}

// flags repeats what the flags of all commands say, for another process.
func (a *app) flags() []string {
	args := []string{"--root", a.root, "--run", a.run, "--log-format", a.logFormat}
	if a.cidr != "" {
		args = append(args, "--network-cidr", a.cidr)
	}
	if a.podPids != 0 {
		args = append(args, "--pod-pids-limit", strconv.FormatInt(a.podPids, 10))
	}
	for _, h := range a.handlerFlags {
		args = append(args, "--runtime-handler", h)
	}
	if a.logLevel != "" {
		args = append(args, "--log-level", a.logLevel)
	}
	return args
}
