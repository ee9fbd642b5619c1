// Package ociruntime has containers made and changed by a program that has the
// command line of an OCI runtime: runc, crun, youki and others.
//
// It knows the program's commands and words. It does not wait for the processes that
// they leave: a container's first process and those of Exec go to the nearest
// subreaper, which is the caller.
package ociruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
)

// stateDir is the folder, in a container's own, that is the program's.
const stateDir = "state"

// patience is how long a command may take. Programs that start a virtual machine
// need seconds; one that hangs must not hold its container forever.
const patience = 2 * time.Minute

// Container is one container of a program. Its methods must not be called at once,
// but for Kill and Exec.
type Container struct {
	Program shim.Program
	ID      string
	// Dir is a folder for this container alone: the program's state of it is there,
	// and what passes between the two. Without the folder there is no container.
	Dir string
	// Sockets is a folder for sockets, whose addresses are short: its path must
	// leave room for 12 bytes.
	Sockets string
}

// Streams are what a process has as its standard streams. A nil one is /dev/null.
type Streams struct {
	Terminal     bool // a new terminal is all three
	In, Out, Err *os.File
}

// Create makes a container of a bundle and returns its first process, which waits
// for Start, and its terminal if it has one. The caller owns that. What an error
// leaves is removed by Delete.
func (c *Container) Create(ctx context.Context, bundle string, s Streams) (pid int, terminal *os.File, err error) {
	err = c.do(ctx, "create", func(ctx context.Context, k *call) error {
		o := &runc.CreateOpts{PidFile: k.pidFile()}
		pid, terminal, err = k.start(s, func(console runc.ConsoleSocket, io runc.IO) error {
			o.ConsoleSocket, o.IO = console, io
			return k.Create(ctx, c.ID, bundle, o)
		})
		return err
	})
	return pid, terminal, err
}

// Start lets the first process run its command.
func (c *Container) Start(ctx context.Context) error {
	return c.do(ctx, "start", func(ctx context.Context, k *call) error { return k.Start(ctx, c.ID) })
}

// Waiting says that the first process still waits for Start.
func (c *Container) Waiting(ctx context.Context) (waiting bool, err error) {
	err = c.do(ctx, "state", func(ctx context.Context, k *call) error {
		found, err := k.State(ctx, c.ID)
		if err == nil {
			waiting = found.Status == string(specs.StateCreated)
		}
		return err
	})
	return waiting, err
}

// Exec starts a process in the container and returns it, and its terminal if it
// has one. group, if not empty, is what ExecGroups.Option gave.
func (c *Container) Exec(ctx context.Context, p *specs.Process, s Streams, group string) (pid int, terminal *os.File, err error) {
	process := *p
	process.Terminal = s.Terminal
	err = c.do(ctx, "exec", func(ctx context.Context, k *call) error {
		o := &runc.ExecOpts{PidFile: k.pidFile(), Detach: true}
		if group != "" {
			o.ExtraArgs = []string{"--cgroup", group}
		}
		pid, terminal, err = k.start(s, func(console runc.ConsoleSocket, io runc.IO) error {
			o.ConsoleSocket, o.IO = console, io
			return k.Exec(ctx, c.ID, process, o)
		})
		return err
	})
	return pid, terminal, err
}

// Kill sends a signal to the first process.
func (c *Container) Kill(ctx context.Context, sig syscall.Signal) error {
	return c.do(ctx, "kill", func(ctx context.Context, k *call) error { return k.Kill(ctx, c.ID, int(sig), nil) })
}

// Update sets the limits that r names.
func (c *Container) Update(ctx context.Context, r *specs.LinuxResources) error {
	return c.do(ctx, "update", func(ctx context.Context, k *call) error { return k.Update(ctx, c.ID, r) })
}

// Delete kills what is left of the container and removes it. It does nothing if the
// program knows nothing of it.
func (c *Container) Delete(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(c.Dir, stateDir)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return c.do(ctx, "delete", func(ctx context.Context, k *call) error {
		return k.Delete(ctx, c.ID, &runc.DeleteOpts{Force: true})
	})
}

// call is one command under way. Its files are in a folder that goes with it, and
// at the latest with the container.
type call struct {
	runc.Runc
	dir     string
	sockets string
}

func (c *Container) do(ctx context.Context, command string, f func(context.Context, *call) error) error {
	dir, err := os.MkdirTemp(c.Dir, "call-")
	if err != nil {
		return fmt.Errorf("cannot call %s: %w", c.Program.Path, err)
	}
	defer os.RemoveAll(dir)
	k := &call{dir: dir, sockets: c.Sockets, Runc: runc.Runc{
		Command: c.Program.Path, ExtraArgs: c.Program.Args, Root: filepath.Join(c.Dir, stateDir),
		Log: filepath.Join(dir, "log"), LogFormat: runc.JSON,
		// A command of a caller that was killed must not go on behind its successor.
		PdeathSignal: syscall.SIGKILL,
	}}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = f(limited, k)
	switch {
	case err == nil:
		return nil
	case limited.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("it took longer than %s and was killed", patience)
	default:
		err = errors.New(said(k.Log, err))
	}
	return &Error{Program: filepath.Base(c.Program.Path), Command: command, Message: err.Error()}
}

func (k *call) pidFile() string { return filepath.Join(k.dir, "pid") }

// start has a process started by run and takes over what it leaves.
func (k *call) start(s Streams, run func(runc.ConsoleSocket, runc.IO) error) (pid int, terminal *os.File, err error) {
	if s.Terminal {
		socket, err := listenConsole(k.sockets)
		if err != nil {
			return 0, nil, err
		}
		defer socket.Close()
		if err := run(socket, nil); err != nil {
			return 0, nil, err
		}
		if terminal, err = socket.terminal(); err != nil {
			return 0, nil, err
		}
	} else {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return 0, nil, err
		}
		defer null.Close()
		if err := run(nil, files{or(s.In, null), or(s.Out, null), or(s.Err, null)}); err != nil {
			return 0, nil, err
		}
	}
	if pid, err = readPID(k.pidFile()); err != nil && terminal != nil {
		terminal.Close()
	}
	return pid, terminal, err
}

func or(f, other *os.File) *os.File {
	if f != nil {
		return f
	}
	return other
}

func readPID(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("it left no process id: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("it left %q as process id", b)
	}
	return pid, nil
}
