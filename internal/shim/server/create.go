package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/server/ociruntime"
	"github.com/berth-run/berth/internal/shim/shimpb"
)

// create makes a container whose first process waits for start. A
// *shim.StartError says that it can't be; nothing is left of it then.
func (s *Server) create(_ context.Context, r *shimpb.CreateRequest) (*container, error) {
	if err := validID(r.Id); err != nil {
		return nil, err
	}
	if !cleanAbs(r.Bundle) {
		return nil, fmt.Errorf("cannot create container %q: bundle %q is not an absolute path", r.Id, r.Bundle)
	}
	st := state{
		Version: 1, ID: r.Id, BootID: s.bootID, Phase: creating, Bundle: r.Bundle,
		LogPath: r.LogPath, LogMaxBytes: r.LogMaxBytes, LogMaxFiles: int(r.LogMaxFiles),
		Stdin: r.Stdin, StdinOnce: r.StdinOnce, TTY: r.Tty, CreatedAt: time.Now(),
	}
	if p := r.Program; p != nil {
		if !cleanAbs(p.Path) {
			return nil, fmt.Errorf("cannot create container %q: program %q is not an absolute path", r.Id, p.Path)
		}
		st.Version, st.Program = 2, &shim.Program{Path: p.Path, Args: p.Args}
	}
	c := s.newContainer(r.Id, st)
	defer c.lock()()
	s.mu.Lock()
	if s.containers[r.Id] != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("container %q: %w", r.Id, shim.ErrExists)
	}
	s.containers[r.Id] = c
	s.mu.Unlock()

	err := c.make(r)
	close(c.made)
	if err == nil {
		return c, nil
	}
	if uerr := c.unmake(); uerr != nil {
		s.log.Error("cannot remove a container that could not be created", "id", r.Id, "err", uerr)
	}
	s.forget(c)
	return nil, err
}

// make does the work of create.
func (c *container) make(r *shimpb.CreateRequest) error {
	s := c.srv
	spec, err := loadSpec(r.Bundle)
	if err != nil {
		return err
	}
	if r.Program != nil && spec.Process.Terminal != r.Tty { // it reads the bundle itself
		return fmt.Errorf("cannot use bundle %s: process.terminal is %t, want %t", r.Bundle, spec.Process.Terminal, r.Tty)
	}
	spec.Process.Terminal = r.Tty
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return fmt.Errorf("cannot create container %q: %w", c.id, err)
	}
	// From here on a new shim finds it and removes it.
	if err := c.change(func(st *state) { st.Mounts = len(r.Rootfs) }); err != nil {
		return err
	}
	if err := mountRootfs(rootfsPath(r.Bundle), r.Rootfs); err != nil {
		return &shim.StartError{Reason: shim.StartFailed, Message: err.Error()}
	}
	config, err := s.libcontainerConfig(c.id, r.Bundle, spec)
	if err != nil {
		return &shim.StartError{Reason: shim.StartFailed, Message: err.Error()}
	}
	paths, err := c.driver.prepare(spec, config)
	if err != nil {
		return &shim.StartError{Reason: shim.StartFailed, Message: err.Error()}
	}
	// Before anything is put into the cgroup: this is what a new shim kills by.
	if err := c.change(func(st *state) {
		st.CgroupPaths = paths
		st.PrivatePIDs = config.Namespaces.IsPrivate(configs.NEWPID)
	}); err != nil {
		return err
	}
	if r.LogPath != "" {
		c.log = newLogFile(r.LogPath, r.LogMaxBytes, int(r.LogMaxFiles))
		if err := c.log.open(); err != nil {
			return fmt.Errorf("cannot open log of container %q: %w", c.id, err)
		}
	}
	streams, err := c.makeStdio(config)
	if err != nil {
		return fmt.Errorf("cannot create standard streams of container %q: %w", c.id, err)
	}
	terminal, err := c.driver.create(streams)
	closeStreams(streams)
	if err != nil {
		return err
	}
	if terminal != nil {
		if err := c.takeTerminal(terminal); err != nil {
			return err
		}
	}
	if c.oom, err = watchOOM(s.poll, paths, c.oomHappened); err != nil {
		s.log.Warn("OOM kills are noticed only at the end", "id", c.id, "err", err)
	}
	return c.change(func(st *state) {
		st.PID, st.Ticks, st.Phase = c.proc.pid, c.proc.ticks, created
	})
}

func (c *container) oomHappened() {
	c.srv.events.publish(shim.Event{Kind: shim.ContainerOOM, ID: c.id, At: time.Now()})
}

// makeStdio makes what the container's first process has as its standard streams,
// and begins to read output. It returns the container's ends, to be closed once they
// are handed over. A terminal is made by the runtime.
func (c *container) makeStdio(config *configs.Config) (ends ociruntime.Streams, err error) {
	if c.st.TTY {
		return ociruntime.Streams{Terminal: true}, nil
	}
	defer func() {
		if err != nil {
			closeStreams(ends)
		}
	}()
	uid, err := config.HostRootUID()
	if err != nil {
		return ends, err
	}
	gid, err := config.HostRootGID()
	if err != nil {
		return ends, err
	}
	fifo := func(name string) error {
		path := filepath.Join(c.dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return &os.PathError{Op: "mkfifo", Path: path, Err: err}
		}
		return os.Chown(path, uid, gid)
	}
	if c.st.Stdin {
		if err := fifo("stdin"); err != nil {
			return ends, err
		}
		// Only an input that ends needs a shim that holds it open.
		flags := unix.O_RDWR
		if c.st.StdinOnce {
			flags = unix.O_RDONLY
		}
		if ends.In, err = containerEnd(c.dir, "stdin", flags); err != nil {
			return ends, err
		}
		if err := c.openStdin(); err != nil {
			return ends, err
		}
	}
	for _, out := range []struct {
		name string
		end  **os.File
	}{{"stdout", &ends.Out}, {"stderr", &ends.Err}} {
		if err := fifo(out.name); err != nil {
			return ends, err
		}
		if *out.end, err = containerEnd(c.dir, out.name, unix.O_RDWR); err != nil {
			return ends, err
		}
		if err := c.openOutput(out.name); err != nil {
			return ends, err
		}
	}
	return ends, c.followStreams()
}

func closeStreams(s ociruntime.Streams) {
	for _, f := range []*os.File{s.In, s.Out, s.Err} {
		if f != nil {
			f.Close()
		}
	}
}

// openOutput opens our end of one output FIFO.
func (c *container) openOutput(name string) error {
	fd, err := openFIFO(c.dir, name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	c.streams = append(c.streams, c.srv.openStream(c.dir, name, fd, c.log, &c.to))
	return nil
}

// openStdin opens our end of the input FIFO.
func (c *container) openStdin() error {
	fd, err := openFIFO(c.dir, "stdin", unix.O_WRONLY)
	if err != nil {
		return err
	}
	c.stdinMu.Lock()
	c.stdin = os.NewFile(uintptr(fd), "stdin")
	c.stdinMu.Unlock()
	return nil
}

// start lets the container run.
func (c *container) start() (time.Time, error) {
	defer c.lock()()
	st := c.state()
	switch st.Phase {
	case created, starting:
	case running:
		return st.StartedAt, nil
	default:
		return time.Time{}, c.wrongState(st.Phase)
	}
	err := c.change(func(st *state) {
		if st.Phase == created { // it may have ended since
			st.Phase = starting
		}
	})
	if err != nil {
		return time.Time{}, err
	}
	if p := c.state().Phase; p != starting {
		return time.Time{}, c.wrongState(p)
	}
	before := commandLine(st.PID)
	if err := c.driver.start(); err != nil {
		return time.Time{}, fmt.Errorf("cannot start container %q: %w", c.id, err)
	}
	c.awaitCommand(st.PID, before)
	now := time.Now()
	c.note(func(st *state) {
		st.StartedAt = now
		if st.Phase == starting { // it may have ended already
			st.Phase = running
		}
	})
	c.srv.events.publish(shim.Event{Kind: shim.ContainerStarted, ID: c.id, At: now})
	return now, nil
}

// commandWait bounds the time from letting a container's first process go until
// it runs the container's command.
const commandWait = time.Second

// awaitCommand returns when the process has another command line than before, or
// has ended. Until then it is libcontainer's own program, which answers SIGTERM
// with exit code 2: nobody may signal it, nor take its end for the command's.
func (c *container) awaitCommand(pid int, before string) {
	ended := c.exited
	if c.proc != nil {
		ended = c.proc.done // its exit is recorded after the start
	}
	deadline := time.Now().Add(commandWait)
	for wait := 50 * time.Microsecond; time.Now().Before(deadline); wait = min(2*wait, 5*time.Millisecond) {
		if now := commandLine(pid); now != "" && now != before {
			return
		}
		select {
		case <-ended:
			return
		case <-time.After(wait):
		}
	}
}

// commandLine is that of a process; empty if it has ended or is between two
// programs.
func commandLine(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(line)
}

// delete removes the container and whatever still runs in it. With notRun it is
// refused if the container's command was run. A start under way ends before that.
func (c *container) delete(notRun bool) error {
	defer c.lock()()
	c.mu.Lock()
	removed := c.removed
	c.mu.Unlock()
	if removed {
		return nil
	}
	if st := c.state(); notRun && (st.Phase == running || !st.StartedAt.IsZero()) {
		return c.wrongState(st.Phase)
	}
	// On a full disk, too: deleting is what makes room.
	c.note(func(st *state) { st.Phase = deleting })
	if err := c.unmake(); err != nil {
		return fmt.Errorf("cannot delete container %q: %w", c.id, err)
	}
	c.srv.forget(c)
	return nil
}

// unmake removes what there is of the container, in whatever state it is. It
// can be repeated. The caller holds op.
func (c *container) unmake() error {
	st := c.state()
	if c.proc != nil {
		if err := c.proc.kill(unix.SIGKILL); err != nil {
			return err
		}
	}
	if len(st.CgroupPaths) > 0 {
		if err := killCgroup(st.CgroupPaths); err != nil {
			return err
		}
	}
	if c.proc != nil && c.proc.done != nil {
		select {
		case <-c.exited:
		case <-time.After(10 * time.Second):
			return fmt.Errorf("process %d does not end", c.proc.pid)
		}
	}
	c.release()
	if err := c.driver.destroy(st); err != nil {
		return err
	}
	if st.Mounts > 0 {
		if err := unmountRootfs(rootfsPath(st.Bundle), st.Mounts); err != nil {
			return err
		}
	}
	return os.RemoveAll(c.dir)
}
