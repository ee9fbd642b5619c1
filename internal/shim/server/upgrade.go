package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
)

// An upgrade replaces the program of the shim's process (execve). The containers
// stay its children, so nothing is forgotten of how they end. What they write
// meanwhile waits in their FIFOs; what the old program has read is in the log or,
// of a line that has no end yet, in a file, before the new one reads on. Lock and
// sockets stay open: nobody else takes the run directory, and clients that connect
// wait. Calls that change something end first. Wait, Await and Events are cut off:
// clients repeat them.
//
// Execs and attachments go on: processes, pipes and what is left of time-outs are
// handed over. Those of clients that don't know Await put an upgrade off.
//
// A program that can't go on with what is there is found out before anything is
// touched. If the new program fails after all, its containers live on as those of a
// shim that was killed.

const (
	// checkPatience is how long the new program may take to say what it is.
	checkPatience = 10 * time.Second
	// upgradePatience is how long an upgrade waits for calls under way. New ones
	// wait behind it.
	upgradePatience = 3 * time.Second
)

// program is what a berth-shim says of itself to the one that it is to replace. Its
// form, and how it is asked for (see askProgram), must not change.
type program struct {
	Version     string `json:"version"`
	Protocol    uint32 `json:"protocol"`    // newest it speaks
	MinProtocol uint32 `json:"minProtocol"` // oldest
	// State and Handover are the newest forms of what one shim leaves to the next
	// that it reads, on disk and in an upgrade; it reads the older ones, too.
	State    int `json:"state"`
	Handover int `json:"handover"`
}

// Check is the whole of `berth-shim check`, by which the shim that serves runDir
// finds out whether it can be replaced by this program: it fails if this one can't
// go on with a container that is there, and changes nothing.
func Check(runDir, version string, out io.Writer) error {
	s := &Server{cfg: Config{RunDir: runDir}}
	entries, err := os.ReadDir(s.containersDir())
	if err != nil {
		return fmt.Errorf("cannot look for containers: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(s.containersDir(), e.Name())
		st, err := loadState(dir)
		if err == nil && st.PID != 0 && st.Phase != deleting && st.Program == nil {
			_, err = libcontainer.Load(s.libcontainerDir(), e.Name())
		}
		// It may be made or deleted just now.
		if _, absent := os.Lstat(filepath.Join(dir, stateName)); err != nil && absent == nil {
			return fmt.Errorf("cannot go on with container %q: %w", e.Name(), err)
		}
	}
	return json.NewEncoder(out).Encode(program{
		Version: version, Protocol: shim.Protocol, MinProtocol: shim.MinProtocol,
		State: stateVersion, Handover: handoverVersion,
	})
}

// admit is how each call but streams comes in.
func (s *Server) admit(ctx context.Context, u ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, m ttrpc.Method) (any, error) {
	switch info.FullMethod {
	case "/berth.shim.v1.Shim/Hello", "/berth.shim.v1.Shim/Wait", "/berth.shim.v1.Shim/Await",
		"/berth.shim.v1.Shim/Cancel", "/berth.shim.v1.Shim/Upgrade":
		return m(ctx, u)
	}
	leave, err := s.gate.Enter(ctx)
	if err != nil {
		return nil, shim.ToRPC(err)
	}
	defer leave()
	return m(ctx, u)
}

// upgrade replaces the program of this process by binary. It returns only if that
// did not happen, and then everything goes on as before.
func (s *Server) upgrade(ctx context.Context, binary string) error {
	if !s.upgrading.TryLock() {
		return fmt.Errorf("cannot upgrade the shim: an upgrade is under way: %w", shim.ErrState)
	}
	defer s.upgrading.Unlock()
	if err := s.checkProgram(ctx, binary); err != nil {
		return fmt.Errorf("cannot upgrade the shim to %s: %w", binary, err)
	}
	wait, cancel := context.WithTimeout(ctx, upgradePatience)
	defer cancel()
	open, err := s.gate.Shut(wait)
	if err != nil {
		return fmt.Errorf("cannot upgrade the shim while calls are under way that take long, try again later: %w", shim.ErrState)
	}
	defer open()
	select {
	case <-s.shutdown:
		return fmt.Errorf("cannot upgrade the shim: it is shutting down: %w", shim.ErrState)
	default:
	}
	defer s.freeze()()
	return s.become(binary)
}

// checkProgram says whether the program at path can go on with what this one leaves
// to it.
func (s *Server) checkProgram(ctx context.Context, path string) error {
	if !cleanAbs(path) {
		return errors.New("want an absolute path")
	}
	p, err := s.askProgram(ctx, path)
	switch {
	case err != nil:
		return err
	case p.MinProtocol > shim.Protocol || p.Protocol < shim.MinProtocol:
		return fmt.Errorf("version %s speaks protocol %d to %d, this shim %d to %d", p.Version, p.MinProtocol, p.Protocol, shim.MinProtocol, shim.Protocol)
	case p.State < stateVersion || p.Handover < handoverVersion:
		return fmt.Errorf("version %s does not understand what this shim leaves to it (state %d, handover %d; want %d and %d)",
			p.Version, p.State, p.Handover, stateVersion, handoverVersion)
	}
	return nil
}

// askProgram lets the program at path say what it is.
func (s *Server) askProgram(ctx context.Context, path string) (p program, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	var out []byte
	err = s.undisturbed(func() (err error) {
		out, err = exec.CommandContext(ctx, path, "check", "--run", s.cfg.RunDir).Output()
		return err
	})
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return p, fmt.Errorf("it does not say what it is: %w", ctx.Err())
	case errors.As(err, &exit):
		return p, fmt.Errorf("it says: %s (%w)", strings.TrimSpace(string(exit.Stderr)), err)
	case err != nil:
		return p, err
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return p, fmt.Errorf("it does not say what it is: %w", err)
	}
	return p, nil
}

// freeze waits for what is under way and stops everything that changes something:
// no end of a process is collected, no output is read. The caller has the gate.
func (s *Server) freeze() (thaw func()) {
	s.ends.Lock()
	s.frozen = true
	s.ends.Unlock()
	// Those that have ended get their output into the log, and their exit saved.
	s.work.Wait()
	s.sessions.pause()
	all := s.all()
	for _, c := range all {
		for _, st := range c.streams {
			st.pause(true)
		}
	}
	return func() {
		s.ends.Lock()
		s.frozen = false
		s.ends.Unlock()
		for _, c := range all {
			for _, st := range c.streams {
				st.pause(false)
			}
			c.proc.lookAgain(s.poll)
			c.holder.lookAgain(s.poll)
		}
		s.sessions.resume()
	}
}

// lookAgain makes the poller tell again of an end that came while the server was
// frozen.
func (p *process) lookAgain(poll *poller) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch != nil {
		poll.rearm(p.watch)
	}
}

// become replaces the program. The server is frozen.
func (s *Server) become(binary string) error {
	// While no process is started: that one would inherit what is kept.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	memory, undo, err := s.pack()
	if err != nil {
		return fmt.Errorf("cannot upgrade the shim: %w", err)
	}
	defer undo()
	argv := append([]string{binary}, os.Args[1:]...)
	env := append(os.Environ(), handoverEnv+"="+strconv.Itoa(memory))
	s.log.Info("the shim is upgraded", "program", binary, "version", s.cfg.Version)
	err = syscall.Exec(binary, argv, env)
	return fmt.Errorf("cannot upgrade the shim: %w", &os.PathError{Op: "execve", Path: binary, Err: err})
}

// packing opens what the next program is to find open. One goroutine uses it.
type packing struct {
	opened []int
	errs   []error
}

// dup makes a copy that is open after execve.
func (p *packing) dup(fd int) (n int, err error) {
	if n, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 3); err != nil {
		return -1, os.NewSyscallError("dup", err)
	}
	p.opened = append(p.opened, n)
	return n, nil
}

func (p *packing) dupOf(f syscall.Conn) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	n = -1
	var dupErr error
	if err = raw.Control(func(fd uintptr) { n, dupErr = p.dup(int(fd)) }); err == nil {
		err = dupErr
	}
	return n, err
}

// must notes the error of what is not allowed to fail.
func (p *packing) must(fd int, err error) int {
	p.errs = append(p.errs, err)
	return fd
}

func (p *packing) close() { p.closeAfter(0) }

// closeAfter closes all but the first n.
func (p *packing) closeAfter(n int) {
	for _, fd := range p.opened[n:] {
		unix.Close(fd)
	}
	p.opened = p.opened[:n]
}

// pack puts into a memory file what is handed over, and opens for the next program
// what that names. undo closes all of it.
func (s *Server) pack() (memory int, undo func(), err error) {
	p := &packing{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	h := handover{
		Version: handoverVersion, Program: s.cfg.Version,
		Lock: p.must(p.dupOf(s.lock)), Socket: p.must(p.dupOf(s.socket)), FDs: p.must(p.dupOf(s.mail)),
		Containers: make(map[string]kept), ExecNumber: s.execNumber.Load(),
	}
	for _, c := range s.all() {
		if st := c.state(); st.Exit == nil && st.PID != 0 {
			h.Containers[c.id] = c.keep(p)
		}
	}
	s.keepSessions(&h, p)
	if err := errors.Join(p.errs...); err != nil {
		return -1, nil, err
	}
	b, err := json.Marshal(h)
	if err != nil {
		return -1, nil, err
	}
	memory, err = unix.MemfdCreate("berth-shim-handover", 0)
	if err != nil {
		return -1, nil, os.NewSyscallError("memfd_create", err)
	}
	p.opened = append(p.opened, memory)
	if n, err := unix.Pwrite(memory, b, 0); err != nil || n != len(b) {
		return -1, nil, fmt.Errorf("cannot write what is handed over: %w", err)
	}
	return memory, p.close, nil
}

// keep opens for the next program what it needs of the container.
func (c *container) keep(p *packing) kept {
	k := noneKept
	for _, st := range c.streams {
		st.mu.Lock()
		if st.fd >= 0 && st.name == "stderr" {
			k.Stderr = p.must(p.dup(st.fd))
		} else if st.fd >= 0 {
			k.Stdout = p.must(p.dup(st.fd))
		}
		st.mu.Unlock()
	}
	c.stdinMu.Lock()
	if c.stdin != nil && !c.state().TTY { // a terminal is both
		k.Stdin = p.must(p.dupOf(c.stdin))
	}
	c.stdinMu.Unlock()
	if c.log != nil {
		c.log.keep(&k, p)
	}
	return k
}
