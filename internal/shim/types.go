package shim

import (
	"io"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Program is an OCI runtime that the shim calls instead of libcontainer.
type Program struct {
	Path string   `json:"path"`           // absolute
	Args []string `json:"args,omitempty"` // options that go before each command
}

// CreateRequest describes a container.
type CreateRequest struct {
	ID     string // letters, digits, "_", "+", "-", "."; unique per run directory
	Bundle string // absolute folder holding config.json (OCI); linux.cgroupsPath must be set and absolute

	// Rootfs is mounted at Bundle/rootfs before the container is made, each
	// entry on top of the one before, and unmounted by Delete. Empty: the
	// caller has mounted it and unmounts it.
	Rootfs []Mount

	// Program makes the container and all changes to it; nil: libcontainer.
	Program *Program

	LogPath     string // file in the CRI log format; empty: output is read and dropped
	LogMaxBytes int64  // the file is rotated before it grows beyond this; 0: never
	LogMaxFiles int    // files kept, the current one included; 0 or 1: only the current one

	// Stdin keeps the container's standard input open for Attach. With
	// StdinOnce it reaches its end when the first attach ends (or when the shim
	// is killed); without, it never ends.
	Stdin, StdinOnce bool
	// TTY gives the container a terminal. Its output is one stream, "stdout".
	// A small holder process keeps the terminal open if the shim is killed.
	TTY bool
}

// Mount is one mount, with the fields of mount(8).
type Mount struct {
	Type    string
	Source  string
	Options []string
}

// CreateResult describes a created container, which waits for Start.
type CreateResult struct {
	PID       int
	CreatedAt time.Time
}

// Exit says how a container or an exec ended.
type Exit struct {
	Code      int32 // exit code; 128 plus the signal when a signal ended it
	Signal    int32 // 0: none
	At        time.Time
	OOMKilled bool // the kernel killed a process of the container for want of memory, and it did not exit with 0
	// Known is false when nobody learned the exit code: the shim was dead when
	// the process ended, or the kernel is older than 6.15 and the process is
	// not a child of this shim. Code and Signal are 0 then and mean nothing.
	Known bool
}

// State is where a container is in its life.
type State int

// The states a container goes through, in order.
const (
	Created State = iota + 1
	Running
	Exited
)

// String returns the name of the state in lower case.
func (s State) String() string {
	switch s {
	case Created:
		return "created"
	case Running:
		return "running"
	case Exited:
		return "exited"
	}
	return "unknown"
}

// Status is what is known of a container.
type Status struct {
	ID        string
	PID       int // of its init process in the shim's PID namespace; stays after it exited
	State     State
	CreatedAt time.Time
	StartedAt time.Time // zero: not started
	Exit      *Exit     // nil: not exited
}

// EventKind says what happened.
type EventKind int

// The kinds of events.
const (
	ContainerStarted EventKind = iota + 1
	ContainerExited
	ContainerOOM // a process of the container was killed for want of memory
	// Replayed follows the last replayed exit of each connection: from here
	// on events are new. Its ID is empty.
	Replayed
)

// Event is something that happened to a container.
type Event struct {
	Kind EventKind
	ID   string
	At   time.Time
	Exit *Exit // of ContainerExited
}

// Size of a terminal in characters.
type Size struct{ Width, Height uint16 }

// ExecRequest runs a process in a running container.
type ExecRequest struct {
	ID      string
	ExecID  string // unique among the execs under way in the container; needed for Resize, may be empty
	Process *specs.Process

	// Files (*os.File) are handed to the process itself, which then may hold
	// them open longer than Exec runs. Others are copied from and to. A nil
	// stream is /dev/null. With TTY, Stdout gets everything and Stderr is not used.
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	TTY     bool
	Resize  <-chan Size   // sizes of the terminal; when it is closed, the terminal hangs up; may be nil
	Timeout time.Duration // 0: none
}

// AttachRequest joins the standard streams of a running container. Output from
// before the attach is not sent. A nil stream is left alone.
type AttachRequest struct {
	ID             string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan Size // for a container with a terminal; may be nil
}

// exitCode is the shell's code of a process ended by sig.
func exitCode(sig syscall.Signal) int32 { return 128 + int32(sig) }

// Killed is the exit of a process ended by sig.
func Killed(sig syscall.Signal, at time.Time) Exit {
	return Exit{Code: exitCode(sig), Signal: int32(sig), At: at, Known: true}
}
