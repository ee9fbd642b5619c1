package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/berth-run/berth/internal/agent"
)

type execOptions struct {
	namespace, container string
	stdin, tty           bool
}

func execCommand(a *app) *cobra.Command {
	var o execOptions
	c := &cobra.Command{
		Use:   "exec POD [-c CONTAINER] -- COMMAND [ARG...]",
		Short: "Run a command in a container that runs",
		Long: `Run a command in a container that runs. The exit code is the command's;
127 if there is no such command, 126 if it can't be executed.

With -i the command gets what you type or pipe in, with -t it runs on a terminal;
a shell wants both.

When berth exec is interrupted or killed, a command on a terminal (-t) gets SIGHUP,
as when a terminal is closed, and nearly all end then. Without -t the command goes
on in the container until it ends by itself or the container does, as with kubectl
and podman; with -i its standard input ends.`,
		Example: `  berth exec web -- cat /etc/hosts
  berth exec -it web -- sh
  tar c . | berth exec -i web -c app -- tar x -C /data`,
		Args:              podAndCommand,
		ValidArgsFunction: a.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n > 1 {
				return usageError("say berth exec %s -- COMMAND: %s is too much", args[0], strings.Join(args[1:n], " "))
			}
			return a.exec(cmd.Context(), args[0], args[1:], o)
		},
	}
	f := c.Flags()
	f.SetInterspersed(true)
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the pod")
	f.StringVarP(&o.container, "container", "c", "", "container; needed if the pod has several")
	f.BoolVarP(&o.stdin, "stdin", "i", false, "pass on standard input")
	f.BoolVarP(&o.tty, "tty", "t", false, "run on a terminal")
	registerContainers(a, c)
	return c
}

func (a *app) exec(ctx context.Context, arg string, command []string, o execOptions) (err error) {
	if command[0] == "" {
		return &exitError{code: exitNoCommand, cause: fmt.Errorf("cannot run a command in pod %s: its name is empty (is a variable of your shell not set?)", arg)}
	}
	s, err := a.connectSettled(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	pod, err := s.onePod(ctx, arg, o.namespace)
	if err != nil {
		return err
	}
	container, err := oneContainer(pod, o.container)
	if err != nil {
		return err
	}
	if err := execable(pod, container); err != nil {
		return err
	}
	stdin, isFile := a.in.(*os.File)
	onTerminal := o.tty && isFile && term.IsTerminal(int(stdin.Fd())) //nolint:gosec // a descriptor fits
	if o.tty && !onTerminal {
		a.note("standard input is no terminal: -t is left out")
		o.tty = false
	}
	executor, err := s.client.Exec(pod.Namespace, pod.Name, container, agent.StreamRequest{
		Command: command, Stdin: o.stdin, Stdout: true, Stderr: !o.tty, TTY: o.tty,
	})
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	defer stop()
	streams := remotecommand.StreamOptions{Stdout: a.out, Stderr: a.err, Tty: o.tty}
	if o.tty {
		streams.Stderr = nil
	}
	if o.stdin {
		streams.Stdin = a.in
	}
	if o.tty {
		raw, err := rawTerminal(ctx, stdin)
		if err != nil {
			return err
		}
		defer raw.restore()
		streams.TerminalSizeQueue = raw
	}
	err = executor.StreamWithContext(ctx, streams)
	var exit utilexec.CodeExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return &exitError{code: exit.Code}
	case ctx.Err() != nil:
		return &exitError{code: signalCode(ctx)}
	}
	err = execFailed(command[0], container, podName(pod.Namespace, pod.Name), err)
	if errors.Is(err, errPidsLimit) {
		err = &exitError{code: exitNotExecutable, cause: fmt.Errorf("%w%s", err, s.howToRaise(ctx))}
	}
	return err
}

// errPidsLimit says that there is no room for a process.
var errPidsLimit = errors.New("the limit of processes and threads is reached")

// howToRaise says what the limit of processes is, and what to do about it.
func (s *session) howToRaise(ctx context.Context) string {
	v, err := ask(ctx, s.client)
	if err != nil || v.PodPids <= 0 {
		return ": end some; the pod has none of its own (--pod-pids-limit), so that it is the machine's"
	}
	return fmt.Sprintf(", %d for a pod: end some, or raise it (stop all pods, then berth run --pod-pids-limit %d)", v.PodPids, 2*v.PodPids)
}

// execable says why nothing can be run in a container of a pod.
func execable(pod *corev1.Pod, container string) error {
	name := podName(pod.Namespace, pod.Name)
	if isTerminal(&pod.Status) {
		return fmt.Errorf("pod %s has ended: nothing can be run in it any more", name)
	}
	c := statusOf(&pod.Status, container)
	switch {
	case c == nil || c.State.Running != nil || inPostStart(c):
		return nil // whoever starts the command knows better
	case c.State.Terminated != nil:
		return fmt.Errorf("container %s of pod %s has ended: %s", container, name, ended(c.State.Terminated).sentence())
	}
	p := &podState{spec: &pod.Spec, status: &pod.Status}
	return fmt.Errorf("container %s of pod %s does not run: %s", container, name, p.stateOf(c).sentence())
}

// Exit codes of shells for a command that could not be started.
const (
	exitNotExecutable = 126
	exitNoCommand     = 127
)

// execFailed puts an error of exec into one line without what only machines want.
func execFailed(command, container, pod string, err error) error {
	text := err.Error()
	if _, cause, ok := strings.Cut(text, "unable to start container process: "); ok {
		cause = strings.TrimPrefix(cause, fmt.Sprintf("exec: %q: ", command))
		code := exitFailed
		switch {
		case strings.Contains(cause, "executable file not found"), strings.Contains(cause, "no such file or directory"):
			code = exitNoCommand
		case strings.Contains(cause, "permission denied"), strings.Contains(cause, "exec format error"), strings.Contains(cause, "is a directory"):
			code = exitNotExecutable
		}
		return &exitError{code: code, cause: fmt.Errorf("cannot run %s in container %s of pod %s: %s", quoted([]string{command}), container, pod, brief(cause))}
	}
	if strings.Contains(text, "its limit of processes and threads is reached") {
		return fmt.Errorf("cannot run %s in container %s of pod %s: %w", quoted([]string{command}), container, pod, errPidsLimit)
	}
	for _, prefix := range []string{"Internal error occurred: ", "error executing command in container: ", "unable to upgrade connection: ", "no such container: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return fmt.Errorf("cannot run %s in container %s of pod %s: %s", quoted([]string{command}), container, pod, brief(text))
}

// rawMode is a terminal that passes everything on, and its sizes.
type rawMode struct {
	file   *os.File
	before *term.State
	sizes  chan remotecommand.TerminalSize
	stop   context.CancelFunc
	done   chan struct{}
}

// rawTerminal makes f raw until restore.
func rawTerminal(ctx context.Context, f *os.File) (*rawMode, error) {
	before, err := term.MakeRaw(int(f.Fd())) //nolint:gosec // a descriptor fits
	if err != nil {
		return nil, fmt.Errorf("cannot set up the terminal: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	r := &rawMode{file: f, before: before, sizes: make(chan remotecommand.TerminalSize), stop: stop, done: make(chan struct{})}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	go func() {
		defer close(r.done)
		defer close(r.sizes)
		defer signal.Stop(resized)
		for {
			w, h := terminalSize(f)
			select {
			case r.sizes <- remotecommand.TerminalSize{Width: uint16(w), Height: uint16(h)}: //nolint:gosec // cells of a terminal
			case <-ctx.Done():
				return
			}
			select {
			case <-resized:
			case <-ctx.Done():
				return
			}
		}
	}()
	return r, nil
}

// Next returns the size of the terminal when it has changed; nil: no more.
func (r *rawMode) Next() *remotecommand.TerminalSize {
	size, ok := <-r.sizes
	if !ok {
		return nil
	}
	return &size
}

func (r *rawMode) restore() {
	r.stop()
	<-r.done
	_ = term.Restore(int(r.file.Fd()), r.before) //nolint:gosec // a descriptor fits
}
