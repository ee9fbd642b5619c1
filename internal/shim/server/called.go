package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/go-runc"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/server/ociruntime"
)

// called is a program that is called for each thing to do. It ends each time; the
// processes it leaves become children of the shim, which is a subreaper.
type called struct {
	c   *container
	oci ociruntime.Container
}

var _ driver = (*called)(nil)

func (p *called) prepare(_ *specs.Spec, config *configs.Config) (map[string]string, error) {
	m, err := manager.New(config.Cgroups)
	if err != nil {
		return nil, err
	}
	return m.GetPaths(), nil
}

func (p *called) create(s ociruntime.Streams) (terminal *os.File, err error) {
	_, err = p.c.srv.takeOrphan(func() (pid int, err error) {
		pid, terminal, err = p.oci.Create(context.Background(), p.c.state().Bundle, s)
		return pid, err
	}, func(proc *process) { p.c.proc = proc }, p.c.ended)
	if err != nil && terminal != nil {
		terminal.Close()
		terminal = nil
	}
	return terminal, programError(err)
}

func (p *called) start() error { return p.oci.Start(context.Background()) }

func (p *called) resume() error {
	waiting, err := p.oci.Waiting(context.Background())
	if err != nil || !waiting {
		return err
	}
	return p.start()
}

func (p *called) groups() bool {
	return p.c.srv.execGroups(p.oci.Program.Path).Option(execController(), "any") != ""
}

func (p *called) exec(spec *specs.Process, s ociruntime.Streams, console *os.File, group *execGroup) (*process, error) {
	var option string
	for controller, name := range group.sub {
		option = p.c.srv.execGroups(p.oci.Program.Path).Option(controller, name)
	}
	var terminal *os.File
	proc, err := p.c.srv.takeOrphan(func() (pid int, err error) {
		pid, terminal, err = p.oci.Exec(context.Background(), spec, s, option)
		return pid, err
	}, func(*process) {}, nil)
	if terminal != nil {
		defer terminal.Close()
		if err == nil {
			err = shim.SendTerminal(console, terminal)
		}
	}
	if err != nil && proc != nil {
		_ = proc.kill(syscall.SIGKILL)
	}
	return proc, programError(err)
}

func (p *called) kill(sig syscall.Signal) error {
	err := p.oci.Kill(context.Background(), sig)
	if err != nil && p.c.proc.over() {
		return nil // it was late
	}
	return err
}

func (p *called) update(r *specs.LinuxResources) error {
	return p.oci.Update(context.Background(), r)
}

func (p *called) destroy(st state) error {
	if err := p.oci.Delete(context.Background()); err != nil {
		// It may have known only half of it, or be gone itself.
		p.c.srv.log.Warn("the program that runs a container can't remove it, what it keeps elsewhere stays", "id", p.c.id, "err", err)
	}
	return removeCgroup(st.CgroupPaths)
}

// programError is the error of a program as one of a start.
func programError(err error) error {
	var e *ociruntime.Error
	if errors.As(err, &e) {
		return e.StartError()
	}
	return err
}

// execGroups says how a program puts execs into cgroups. It is asked once.
func (s *Server) execGroups(program string) ociruntime.ExecGroups {
	s.mu.Lock()
	g, known := s.programs[program]
	s.mu.Unlock()
	if known {
		return g
	}
	g, err := ociruntime.AskExecGroups(context.Background(), program)
	if err != nil {
		s.log.Warn("a time-out of an exec may leave processes behind", "program", program, "err", err)
		return g // asked again
	}
	s.mu.Lock()
	s.programs[program] = g
	s.mu.Unlock()
	return g
}

// useForPrograms lets go-runc start programs so that the reaper leaves them alone,
// and removes what a killed shim left of calls.
func (s *Server) useForPrograms() error {
	runc.Monitor = monitor{s}
	// The folder where go-runc puts the processes to exec: they may hold secrets.
	if err := os.Setenv("XDG_RUNTIME_DIR", s.cfg.RunDir); err != nil {
		return err
	}
	for _, pattern := range []string{"runc-process*", "tty*"} {
		left, err := filepath.Glob(filepath.Join(globEscape(s.cfg.RunDir), pattern))
		if err != nil {
			return err
		}
		for _, path := range left {
			os.Remove(path)
		}
	}
	return nil
}
