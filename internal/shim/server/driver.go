package server

import (
	"os"
	"syscall"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/server/ociruntime"
)

// driver makes a container and its processes and changes them: libcontainer, in
// this process, or a program. Who has the container's op may call it, and anybody
// kill.
type driver interface {
	// prepare is called before anything is made. It returns the paths of the
	// cgroups, by controller, that the container will have. spec and config say the
	// same.
	prepare(spec *specs.Spec, config *configs.Config) (cgroups map[string]string, err error)
	// create makes the container and sets its proc, the first process, which waits
	// for start and is watched. A terminal is the caller's.
	create(s ociruntime.Streams) (terminal *os.File, err error)
	start() error
	// resume does what is left of a start that a former shim began.
	resume() error
	// groups says whether exec can put a process into a cgroup below the container's.
	groups() bool
	// exec starts a process, which is watched, in group, which is made; without a
	// path it is none. A terminal is sent to console.
	exec(p *specs.Process, s ociruntime.Streams, console *os.File, group *execGroup) (*process, error)
	kill(sig syscall.Signal) error
	update(r *specs.LinuxResources) error
	// destroy removes the cgroup and what the runtime knows of the container, also
	// if that was never complete. No process is left.
	destroy(st state) error
}

// driverOf is what runs a container.
func driverOf(c *container, program *shim.Program) driver {
	if program == nil {
		return &builtin{c: c}
	}
	return &called{c: c, oci: ociruntime.Container{Program: *program, ID: c.id, Dir: c.dir, Sockets: c.srv.cfg.RunDir}}
}
