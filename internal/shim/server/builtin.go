package server

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/server/ociruntime"
)

// builtin is libcontainer in this process. Its first processes and execs are children
// of the shim from the beginning.
type builtin struct {
	c  *container
	lc *libcontainer.Container // loaded when first needed
	lp *libcontainer.Process   // the first process, from prepare to create
}

var _ driver = (*builtin)(nil)

// container returns libcontainer's view of the container.
func (b *builtin) container() (*libcontainer.Container, error) {
	if b.lc == nil {
		lc, err := libcontainer.Load(b.c.srv.libcontainerDir(), b.c.id)
		if err != nil {
			return nil, fmt.Errorf("cannot load container %q: %w", b.c.id, err)
		}
		b.lc = lc
	}
	return b.lc, nil
}

func (b *builtin) prepare(spec *specs.Spec, config *configs.Config) (cgroups map[string]string, err error) {
	s := b.c.srv
	if b.lp, err = s.newProcess(spec.Process); err != nil {
		return nil, err
	}
	b.lp.Init = true
	if b.lc, err = libcontainer.Create(s.libcontainerDir(), b.c.id, config); err != nil {
		return nil, err
	}
	st, err := b.lc.State()
	if err != nil {
		return nil, err
	}
	return st.CgroupPaths, nil
}

func (b *builtin) create(s ociruntime.Streams) (terminal *os.File, err error) {
	console, err := b.give(b.lp, s)
	if err != nil {
		return nil, err
	}
	theirs := b.lp.ConsoleSocket
	if console != nil {
		defer console.Close()
		defer theirs.Close()
	}
	if err := b.startInit(); err != nil {
		return nil, err
	}
	if console == nil {
		return nil, nil
	}
	theirs.Close() // so that the other end's is seen
	if terminal, err = shim.ReceiveTerminal(console); err != nil {
		return nil, &shim.StartError{Reason: shim.StartFailed, Message: err.Error()}
	}
	return terminal, nil
}

// give hands streams to a process that is not yet started. With a terminal it
// returns the socket that it will come from.
func (b *builtin) give(lp *libcontainer.Process, s ociruntime.Streams) (console *os.File, err error) {
	if s.Terminal {
		console, lp.ConsoleSocket, err = shim.SocketPair()
		return console, err
	}
	// A nil pointer in a non-nil interface is not /dev/null.
	if s.In != nil {
		lp.Stdin = s.In
	}
	if s.Out != nil {
		lp.Stdout = s.Out
	}
	if s.Err != nil {
		lp.Stderr = s.Err
	}
	return nil, nil
}

// startInit starts the container's first process, which then waits.
func (b *builtin) startInit() error {
	s := b.c.srv
	s.starting.RLock()
	defer s.starting.RUnlock()
	if err := s.startProcess(b.lc, b.lp); err != nil {
		return startError(err)
	}
	p, err := childProcess(b.lp)
	if err != nil {
		return err
	}
	b.c.proc, b.lp = p, nil
	return s.watchProcess(p, b.c.ended)
}

func (b *builtin) start() error {
	lc, err := b.container()
	if err != nil {
		return err
	}
	return lc.Exec()
}

// resume takes the one byte that lets the first process go on, if that is still
// waiting to give it.
func (b *builtin) resume() error {
	path := filepath.Join(b.c.srv.libcontainerDir(), b.c.id, "exec.fifo")
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		// A process that waits is woken by the open and writes; one that runs
		// already never does.
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 200)
		unix.Close(fd)
		err = os.Remove(path)
	}
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

func (b *builtin) groups() bool { return true }

func (b *builtin) exec(spec *specs.Process, streams ociruntime.Streams, console *os.File, group *execGroup) (*process, error) {
	s := b.c.srv
	lp, err := s.newProcess(spec)
	if err != nil {
		return nil, startError(err)
	}
	if streams.Terminal {
		lp.ConsoleSocket = console
	} else if _, err := b.give(lp, streams); err != nil {
		return nil, err
	}
	lp.SubCgroupPaths = group.sub
	lc, err := b.container()
	if err != nil {
		return nil, err
	}
	s.starting.RLock()
	defer s.starting.RUnlock()
	if err := s.startProcess(lc, lp); err != nil {
		return nil, startError(err)
	}
	p, err := childProcess(lp)
	if err == nil {
		err = s.watchProcess(p, nil)
	}
	if err != nil {
		group.kill() // or the wait does not end
		_, _ = lp.Wait()
		return nil, err
	}
	return p, nil
}

func (b *builtin) kill(sig syscall.Signal) error { return b.c.proc.kill(sig) }

// destroy runs the hooks for that, too.
func (b *builtin) destroy(st state) error {
	lc, err := b.container()
	if err == nil {
		if config := lc.Config(); len(config.Hooks[configs.Poststop]) > 0 {
			err = b.c.srv.undisturbed(lc.Destroy)
		} else {
			err = lc.Destroy()
		}
		b.lc = nil
		if err == nil {
			return nil
		}
	}
	// It was never complete, or its state is torn: by hand, then.
	if err := removeCgroup(st.CgroupPaths); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(b.c.srv.libcontainerDir(), b.c.id))
}
