package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/server/ociruntime"
	"github.com/berth-run/berth/internal/shim/shimpb"
)

// execPrefix begins the names of the sub-cgroups execs run in.
const execPrefix = "berth-exec-"

// execution is a process that runs in a container besides the first one.
type execution struct {
	srv      *Server
	group    *execGroup
	p        *process
	deadline time.Time // zero: none
	timedOut atomic.Bool
}

// exec starts a process in the container. files are its streams, as the request
// says; exec closes them.
func (c *container) exec(r *shimpb.ExecRequest, files []*os.File) (*execution, error) {
	e := &execution{srv: c.srv}
	if r.Timeout > 0 {
		e.deadline = time.Now().Add(time.Duration(r.Timeout))
	}
	defer closeFiles(files)
	var err error
	e.group, e.p, err = c.startExec(r, files)
	return e, err
}

// run waits for the end of the process. When ctx ends or the time is over,
// everything that it started is killed.
func (e *execution) run(ctx context.Context) *shimpb.ExecResponse {
	defer e.group.leave()
	var timeout <-chan time.Time
	if !e.deadline.IsZero() {
		t := time.NewTimer(time.Until(e.deadline))
		defer t.Stop()
		timeout = t.C
	}
	if e.timedOut.Load() { // before an upgrade
		e.kill()
	} else {
		select {
		case <-e.p.done:
		case <-timeout:
			e.timedOut.Store(true)
			e.kill()
		case <-ctx.Done():
			e.kill()
		}
	}
	return &shimpb.ExecResponse{TimedOut: e.timedOut.Load(), Exit: &shimpb.ExitStatus{
		Code: e.p.status.code(), Signal: e.p.status.signal(), At: e.p.at.UnixNano(), Known: e.p.status.known,
	}}
}

func (e *execution) over() bool {
	select {
	case <-e.p.done:
		return true
	default:
		return false
	}
}

// pause does nothing: ends are not collected during an upgrade.
func (e *execution) pause() {}

func (e *execution) resume() { e.p.lookAgain(e.srv.poll) }

// startExec starts the process in a cgroup of its own.
func (c *container) startExec(r *shimpb.ExecRequest, files []*os.File) (*execGroup, *process, error) {
	var spec specs.Process
	if err := json.Unmarshal(r.Process, &spec); err != nil {
		return nil, nil, fmt.Errorf("cannot decode process: %w", err)
	}
	if err := checkProcess(&spec); err != nil {
		return nil, nil, err
	}
	streams, console, err := streamsOf(r, files)
	if err != nil {
		return nil, nil, err
	}

	defer c.lock()()
	st := c.state()
	if st.Phase != running && st.Phase != created {
		return nil, nil, c.wrongState(st.Phase)
	}
	group := &execGroup{}
	if c.driver.groups() {
		if group, err = newExecGroup(st.CgroupPaths, c.srv.execNumber.Add(1)); err != nil {
			return nil, nil, err
		}
	}
	p, err := c.driver.exec(&spec, streams, console, group)
	if err != nil {
		group.kill() // it may run, yet nobody watches it
		group.leave()
		if st := c.state(); st.Phase != running && st.Phase != created {
			return nil, nil, c.wrongState(st.Phase) // it ended meanwhile
		}
		return nil, nil, err
	}
	return group, p, nil
}

// streamsOf says what the received descriptors are. What is nil is /dev/null; with a
// terminal it is sent to console.
func streamsOf(r *shimpb.ExecRequest, files []*os.File) (s ociruntime.Streams, console *os.File, err error) {
	next := func(wanted bool) (f *os.File) {
		switch {
		case !wanted:
		case len(files) == 0:
			err = errors.New("cannot start exec: its streams did not arrive")
		default:
			f, files = files[0], files[1:]
		}
		return f
	}
	if s.Terminal = r.Tty; r.Tty {
		console = next(true)
		return s, console, err
	}
	s.In, s.Out, s.Err = next(r.Stdin), next(r.Stdout), next(r.Stderr)
	return s, nil, err
}

// kill kills the exec's processes and waits until the first one is reaped. The
// others are reaped by their parents: in a PID namespace of its own that is in the
// end the container's first process, and if that reaps nothing, they stay zombies.
// The kernel gives orphans to subreapers of their own namespace only, so the shim
// can't be one for them.
func (e *execution) kill() {
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if !e.group.kill() {
			// No group: at least the process itself, its session, and its children.
			killTree(e.p.pid)
		}
		select {
		case <-e.p.done:
			e.group.kill()
			return
		case <-time.After(wait):
		}
	}
}

// execGroup is the cgroup of one exec below the container's: on v2 a group
// without controllers of its own, on v1 one in the freezer hierarchy only. What
// the exec uses is counted for the container either way.
type execGroup struct {
	path    string            // "": there is none, and the process tree is walked
	parent  string            // the container's own group
	unified bool              // cgroup v2
	sub     map[string]string // its name, by controller
}

func newExecGroup(paths map[string]string, number uint64) (*execGroup, error) {
	name := execPrefix + strconv.FormatUint(number, 10)
	controller := execController()
	parent := paths[controller]
	if parent == "" {
		return &execGroup{}, nil
	}
	g := execGroupAt(filepath.Join(parent, name))
	g.sub = map[string]string{controller: name}
	if err := os.Mkdir(g.path, 0o755); err != nil && !os.IsExist(err) {
		if os.IsNotExist(err) {
			return nil, fmt.Errorf("cannot start exec: the container's cgroup is gone: %w", shim.ErrState)
		}
		return nil, fmt.Errorf("cannot create cgroup of exec: %w", err)
	}
	return g, nil
}

// execController is the one whose hierarchy has the groups of execs.
func execController() string {
	if cgroups.IsCgroup2UnifiedMode() {
		return ""
	}
	return "freezer"
}

// execGroupAt is a group that exists, or is about to; an empty path is none.
func execGroupAt(path string) *execGroup {
	if path == "" {
		return &execGroup{}
	}
	return &execGroup{path: path, parent: filepath.Dir(path), unified: execController() == ""}
}

// kill kills every process of the group, once. It returns false if there is no
// group to kill by.
func (g *execGroup) kill() bool {
	if g.path == "" {
		return false
	}
	pids, err := readPids(g.path)
	if err != nil {
		return os.IsNotExist(err)
	}
	if len(pids) > 0 {
		if g.unified {
			killAll(g.path, "", pids)
		} else {
			killAll("", g.path, pids)
		}
	}
	return true
}

// leave removes the group. Processes left in it, like daemons the exec started,
// move to the container's own group.
func (g *execGroup) leave() {
	if g.path == "" {
		return
	}
	for range 100 {
		err := unix.Rmdir(g.path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return
		}
		pids, err := readPids(g.path)
		if err != nil {
			return
		}
		for _, pid := range pids {
			// Fails for one that has just ended.
			_ = os.WriteFile(filepath.Join(g.parent, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		}
		if len(pids) == 0 {
			time.Sleep(time.Millisecond) // ended, and not yet gone
		}
	}
	// Goes with the container's group.
}

// killStrayExecs kills execs whose shim was killed: nobody waits for them. Those of
// known groups go on.
func killStrayExecs(paths map[string]string, known map[string]bool) {
	parent := paths[execController()]
	if parent == "" {
		return
	}
	dirs, err := filepath.Glob(filepath.Join(globEscape(parent), execPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if !known[dir] {
			g := execGroupAt(dir)
			g.kill()
			g.leave()
		}
	}
}

// killTree kills pid and all its descendants, children first stopped so that
// they can't fork away. For machines without a freezer.
func killTree(pid int) {
	_ = unix.Kill(pid, unix.SIGSTOP)
	for _, child := range children(pid) {
		killTree(child)
	}
	_ = unix.Kill(pid, unix.SIGKILL)
}

// children lists the child processes of all threads of pid.
func children(pid int) []int {
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, s := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(s); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}
