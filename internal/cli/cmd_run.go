package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/manifest"
)

func runCommand(a *app) *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run FILE...",
		Short: "Run the pods of manifests and watch them",
		Long: `Run the pods of manifests: YAML or JSON files, folders, or - for standard input.
Pod, ConfigMap, Secret and List are understood. A pod waits for a ConfigMap or
Secret that is missing: name the files of both, and it goes on.

berth run stays, shows what happens and what the containers write, and ends when
all pods have ended. Its exit code is 0 if all succeeded; that of the failed
container, if it ran a single pod; else 1. Pods that have ended stay listed in
berth ps, with their logs, until berth rm, or until a pod of their name runs
again. Ctrl-C (or SIGTERM) stops the pods in order and removes them; a second one
kills them.

When --timeout passes, it says what is not done and why, and stops the pods. They
stay listed as failed: TimedOut, with what they were not done by, their logs and
events: berth ps, logs and describe. With --until ready or --detach they go on.

With --until ready it returns as soon as all pods are Ready and leaves them
running under an agent in the background; --detach does so at once. That agent
leaves by itself when no pod lives any more.

If an agent runs on the same --root already, the pods are handed to it. A pod
that runs already, unchanged, is not restarted; when several berth run follow it,
it goes on until the last of them is stopped. A pod that ended while nobody was
there to tell (berth was killed) is not run a second time: the next berth run
tells how it ended. A pod that is there already is told as it is, with what it
wrote so far; what it went through before is in berth describe.

Signals of one kind within 300 ms are one request, since timeout(1) and terminals
that close send more than one.

Exit codes of berth itself: 1 something failed, 2 a manifest or the command line
is wrong (nothing was started), 124 --timeout passed, 129, 130, 141 or 143 stopped
by SIGHUP, Ctrl-C, a reader of its output that left, or SIGTERM.`,
		Example: `  berth run pod.yaml                     # watch it, Ctrl-C stops it
  berth run --until ready web.yaml db.yaml --timeout 1m
  berth run --detach pods/               # all files of a folder
  berth run -o json job.yaml | jq -c .   # for programs
  generate-pod | berth run -`,
		Args: atLeastOne("file"),
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			v, err := a.newView(o.output)
			if err != nil {
				return err
			}
			objects, err := a.load(files)
			if err != nil {
				return err
			}
			return newRun(a, o, v).run(cmd.Context(), objects)
		},
	}
	f := c.Flags()
	f.StringVar(&o.until, "until", "", "return when all pods are: ready or done (default done)")
	f.DurationVar(&o.timeout, "timeout", 0, "give up after this long, with exit code 124: with --until ready the pods go on, else they are stopped and stay listed")
	f.BoolVarP(&o.detach, "detach", "d", false, "leave the pods running under an agent in the background")
	f.StringVarP(&o.output, "output", "o", "auto", "how to show it: live (on a terminal), plain or json")
	f.BoolVar(&o.noLogs, "no-logs", false, "don't show what the containers write")
	return c
}

// runOptions are the flags of berth run.
type runOptions struct {
	until   string // ready or done
	timeout time.Duration
	detach  bool
	output  string
	noLogs  bool

	// follow says whether to stay and watch; leave, whether pods go on afterwards.
	follow, leave bool
}

func (o *runOptions) complete(cmd *cobra.Command) error {
	given := o.until != ""
	switch o.until {
	case "":
		o.until = "done"
	case "ready", "done":
	default:
		return usageError("--until is %q, want ready or done", o.until)
	}
	if o.timeout < 0 {
		return usageError("--timeout is %s, want a time such as 90s", o.timeout)
	}
	if cmd.Flags().Changed("timeout") && o.timeout == 0 {
		return usageError("--timeout is 0, want a time such as 90s")
	}
	o.follow = !o.detach || given
	o.leave = o.detach || o.until == "ready"
	if o.detach && o.until == "done" && given {
		return usageError("--detach does not wait, --until done does: leave out one of them")
	}
	if !o.follow && o.timeout > 0 {
		return usageError("--timeout has nothing to wait for: say --until ready as well")
	}
	return nil
}

// check reads manifests and prints what is wrong with them, without berth's name:
// editors look for FILE:LINE: at the beginning. Errors end berth.
func (a *app) check(files []string) (manifest.Set, error) {
	classes, err := a.runtimeClasses()
	if err != nil {
		return manifest.Set{}, err
	}
	set, problems := manifest.Load(files, manifest.Options{Stdin: a.in, RuntimeClasses: classes})
	if problems.Err() == nil {
		problems = append(problems, set.MissingReferences()...)
	}
	for _, p := range problems {
		fmt.Fprintln(a.err, p)
	}
	if problems.Err() != nil {
		return set, &exitError{code: exitUsage}
	}
	return set, nil
}

// runtimeClasses are the names of the handlers that pods of the root may name: those
// given, else those of the agent before.
func (a *app) runtimeClasses() (names []string, err error) {
	list := a.handlers
	if list == nil && a.home.Root != "" {
		if list, err = agent.RuntimeHandlers(a.home); err != nil {
			return nil, err
		}
	}
	for _, h := range list {
		names = append(names, h.Name)
	}
	return names, nil
}

// load is check for those who run the pods.
func (a *app) load(files []string) (agent.Objects, error) {
	set, err := a.check(files)
	if err != nil {
		return agent.Objects{}, err
	}
	if len(set.Pods) == 0 {
		if len(set.ConfigMaps)+len(set.Secrets) > 0 {
			return agent.Objects{}, usageError("no pod is in %s; name the files of pods that use what is in there as well", fileNames(files))
		}
		return agent.Objects{}, usageError("no pod is in %s", fileNames(files))
	}
	return agent.Objects{Pods: set.Pods, ConfigMaps: set.ConfigMaps, Secrets: set.Secrets}, nil
}

func fileNames(files []string) string {
	if len(files) == 1 {
		if files[0] == "-" {
			return "what came on standard input"
		}
		return files[0]
	}
	return fmt.Sprintf("these %d files", len(files))
}
