package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
)

const (
	// outputWait is how long a plugin's output is waited for after its end, in
	// case something that it started holds it open.
	outputWait = 2 * time.Second
	// busyTries and busyWait are for a plugin that is being installed.
	busyTries = 10
	busyWait  = 200 * time.Millisecond
)

// plugins runs plugins for libcni.
type plugins struct {
	*version.PluginDecoder          // has no state
	held                   *os.File // kept open by each plugin and what it starts; nil: none
	log                    *slog.Logger
}

var _ invoke.Exec = plugins{}

// FindInPath looks for a plugin's program.
func (plugins) FindInPath(plugin string, dirs []string) (string, error) {
	path, err := invoke.FindInPath(plugin, dirs)
	if err != nil {
		return "", fmt.Errorf("cannot find the CNI plugin %q in %s: install it there, or name its folder with --cni-bin-dir", plugin, strings.Join(dirs, ", "))
	}
	return path, nil
}

// ExecPlugin runs a plugin and returns what it answers. If ctx ends, it is killed,
// and what it has started too.
func (p plugins) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	for try := 1; ; try++ {
		out, err := p.run(ctx, path, stdin, environ)
		if try == busyTries || !errors.Is(err, unix.ETXTBSY) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(busyWait):
		}
	}
}

func (p plugins) run(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, path)
	c.Env, c.Stdin, c.Stdout, c.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = outputWait
	if p.held != nil {
		c.ExtraFiles = []*os.File{p.held}
	}
	began := time.Now()
	err := c.Run()
	command := commandOf(environ)
	p.log.Debug("a CNI plugin has run", "plugin", path, "command", command, "took", time.Since(began), "err", err, "said", stderr.String())
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s was ended before it was done: %w", path, ctx.Err())
	case c.ProcessState == nil:
		return nil, err // it was not started
	}
	told := tellError(err, stdout.Bytes(), stderr.Bytes())
	if told.Code == types.ErrUnknownContainer && command == "DEL" {
		return nil, nil // the plugin has nothing to take down
	}
	return nil, told
}

// commandOf is what a plugin is told to do: of two values the later one.
func commandOf(environ []string) (command string) {
	for _, variable := range environ {
		if value, ok := strings.CutPrefix(variable, "CNI_COMMAND="); ok {
			command = value
		}
	}
	return command
}

// tellError is what a plugin says of its failure.
func tellError(err error, stdout, stderr []byte) *types.Error {
	var told types.Error
	if json.Unmarshal(stdout, &told) == nil && told.Msg != "" {
		return &told
	}
	said := bytes.TrimSpace(append(bytes.TrimSpace(stderr), stdout...))
	if len(said) == 0 {
		return &types.Error{Code: types.ErrInternal, Msg: err.Error()}
	}
	return &types.Error{Code: types.ErrInternal, Msg: fmt.Sprintf("%v: %s", err, said)}
}
