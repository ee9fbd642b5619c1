package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	remotecommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/berth-run/berth/internal/cri/ocispec"
	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

// outputLimit is how much of each stream ExecSync returns, in bytes (CVE-2022-31030).
const outputLimit = 16 << 20

// Exec registers a command and returns the URL to stream it.
func (s *Service) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if _, err := s.running(r.GetContainerId()); err != nil {
		return nil, err
	}
	return s.stream.Exec(r)
}

// ExecSync runs a command and returns what it wrote, up to 16 MiB of each
// stream. A command that fails gives a utilexec.CodeExitError beside its
// output; one that takes longer than timeout is killed with its children, and
// the error is a context.DeadlineExceeded and a gRPC DeadlineExceeded.
// A timeout of 0 means none.
func (s *Service) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	c, err := s.running(id)
	if err != nil {
		return nil, nil, err
	}
	var out, errOut limitedBuffer
	exit, err := s.exec(ctx, c, cmd, streams{stdout: &out, stderr: &errOut}, timeout)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, nil, &timeoutError{cmd: cmd, timeout: timeout}
		}
		return nil, nil, err
	}
	if exit.Code != 0 {
		err = utilexec.CodeExitError{
			Err:  fmt.Errorf("command %q exited with %d: %s", strings.Join(cmd, " "), exit.Code, errOut.Bytes()),
			Code: int(exit.Code),
		}
	}
	return out.Bytes(), errOut.Bytes(), err
}

// timeoutError says that a command took too long.
type timeoutError struct {
	cmd     []string
	timeout time.Duration
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("command %q timed out after %s", strings.Join(e.cmd, " "), e.timeout)
}
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }

// GRPCStatus lets remote callers see what it is.
func (e *timeoutError) GRPCStatus() *status.Status {
	return status.New(codes.DeadlineExceeded, e.Error())
}

// exec runs a command in a running container, as its user and under its
// restrictions.
func (s *Service) exec(ctx context.Context, c *container, cmd []string, st streams, timeout time.Duration) (shim.Exit, error) {
	if len(cmd) == 0 {
		return shim.Exit{}, coded(codes.InvalidArgument, "cannot execute: no command given")
	}
	spec, err := readSpec(s.containerDir(c.id))
	if err != nil {
		return shim.Exit{}, fmt.Errorf("cannot execute in container %s: %w", c.id, err)
	}
	words := &lastWords{w: io.Discard}
	if st.stderr != nil {
		words.w, st.stderr = st.stderr, words
	}
	exit, err := s.cfg.Shim.Exec(ctx, shim.ExecRequest{
		ID:      c.id,
		ExecID:  newID()[:16],
		Process: execProcess(spec.Process, cmd, st.tty),
		Stdin:   st.stdin,
		Stdout:  st.stdout,
		Stderr:  st.stderr,
		TTY:     st.tty,
		Resize:  st.resize,
		Timeout: timeout,
	})
	if err := words.end(err); err != nil {
		return exit, fmt.Errorf("cannot execute in container %s: %w", c.id, err)
	}
	if !exit.Known {
		return exit, fmt.Errorf("the exit code of the command in container %s is not known", c.id)
	}
	return exit, nil
}

// execProcess is the container's first process with another command.
func execProcess(p *specs.Process, cmd []string, tty bool) *specs.Process {
	out := *p
	out.Args = cmd
	out.Terminal = tty
	out.ConsoleSize = nil
	if tty {
		out.Env = ocispec.MergeEnv([]string{"TERM=xterm"}, p.Env)
	}
	return &out
}

// limitedBuffer keeps the first outputLimit bytes and swallows the rest.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := outputLimit - b.Len(); room < len(p) {
		b.Buffer.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// streamRuntime connects streams to containers, for the stream server.
type streamRuntime struct{ *Service }

var _ streaming.Runtime = streamRuntime{}

// Exec runs a command with the client's streams.
func (r streamRuntime) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := r.running(id)
	if err != nil {
		return err
	}
	sizes, stop := terminalSizes(resize)
	defer stop()
	exit, err := r.exec(ctx, c, cmd, streamsOf(in, out, errOut, tty, sizes), 0)
	if err != nil {
		return err
	}
	if exit.Code != 0 {
		return &utilexec.CodeExitError{
			Err:  fmt.Errorf("command terminated with exit code %d", exit.Code),
			Code: int(exit.Code),
		}
	}
	return nil
}

// streamsOf avoids nil pointers in non-nil interfaces.
func streamsOf(in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan shim.Size) streams {
	st := streams{stdin: in, tty: tty, resize: resize}
	if out != nil {
		st.stdout = out
	}
	if errOut != nil && !tty {
		st.stderr = errOut
	}
	return st
}

// terminalSizes passes sizes on until the source is closed or stop is called.
func terminalSizes(in <-chan remotecommand.TerminalSize) (out <-chan shim.Size, stop func()) {
	if in == nil {
		return nil, func() {}
	}
	sizes := make(chan shim.Size)
	quit := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(sizes)
		for {
			select {
			case size, ok := <-in:
				if !ok {
					return
				}
				select {
				case sizes <- shim.Size{Width: size.Width, Height: size.Height}:
				case <-quit:
					return
				}
			case <-quit:
				return
			}
		}
	}()
	return sizes, func() {
		close(quit)
		<-ended
	}
}

func notRunning(id string, st store.ContainerState) error {
	return coded(codes.FailedPrecondition, "container %s is not running, it is %s", id, st)
}
