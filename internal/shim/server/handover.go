package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
)

// handoverVersion is the newest form of handover that this program reads; it must
// go on reading older ones.
const handoverVersion = 1

// handoverEnv names the descriptor of a memory file that holds a handover.
const handoverEnv = "BERTH_SHIM_HANDOVER_FD"

// handover is what a shim gives to the program that replaces it in its process,
// besides what is on disk: the numbers of descriptors that stay open.
type handover struct {
	Version    int             `json:"version"`
	Program    string          `json:"program"` // version of the former one
	Lock       int             `json:"lock"`
	Socket     int             `json:"socket"`
	FDs        int             `json:"fds"`
	Containers map[string]kept `json:"containers"`

	ExecNumber uint64       `json:"execNumber,omitempty"` // the last one
	Execs      []keptExec   `json:"execs,omitempty"`
	Answers    []keptAnswer `json:"answers,omitempty"`
}

// keptExec is what is handed over of an exec.
type keptExec struct {
	Token     uint64        `json:"token"`
	PID       int           `json:"pid"`
	Ticks     uint64        `json:"ticks"`
	Group     string        `json:"group,omitempty"` // its cgroup
	Left      time.Duration `json:"left,omitempty"`  // of its time-out, at least a nanosecond; 0: none
	TimedOut  bool          `json:"timedOut,omitempty"`
	Cancelled bool          `json:"cancelled,omitempty"`
}

// keptAttachment is what is handed over of an attachment. A descriptor that is -1 is
// not wanted.
type keptAttachment struct {
	Token   uint64 `json:"token"`
	Stdin   int    `json:"stdin"` // -1 also once the input has ended
	Stdout  int    `json:"stdout"`
	Stderr  int    `json:"stderr"`
	Pending []byte `json:"pending,omitempty"` // input that was read and not written
}

// keptAnswer is the answer to an Await that may not have arrived.
type keptAnswer struct {
	Token  uint64 `json:"token"`
	Answer []byte `json:"answer"` // an ExecResponse
}

// kept is what is handed over of a container that may still run. A descriptor that
// is -1 was not open.
type kept struct {
	// Stdout and Stderr keep what is in the FIFOs, or the terminal, until they are
	// opened again. Nothing is read from them.
	Stdout int `json:"stdout"`
	Stderr int `json:"stderr"`
	Stdin  int `json:"stdin"`
	// Log may have another name by now: who renames it tells the shim later.
	Log     int    `json:"log"`
	Dropped uint64 `json:"dropped,omitempty"` // lines, see logFile
	Pending uint64 `json:"pending,omitempty"`
	LastErr string `json:"lastErr,omitempty"`

	Attachments []keptAttachment `json:"attachments,omitempty"`
}

// noneKept is of a container of which nothing is open.
var noneKept = kept{Stdout: -1, Stderr: -1, Stdin: -1, Log: -1}

// descriptors lists all that are handed over.
func (h *handover) descriptors() []int {
	var fds []int
	for _, k := range h.Containers {
		fds = append(fds, k.Stdout, k.Stderr, k.Stdin, k.Log)
		for _, a := range k.Attachments {
			fds = append(fds, a.Stdin, a.Stdout, a.Stderr)
		}
	}
	fds = slices.DeleteFunc(fds, func(fd int) bool { return fd == -1 })
	return append(fds, h.Lock, h.Socket, h.FDs)
}

// receiveHandover takes what a former program of this process handed over; nil if
// there was none.
func receiveHandover() (*handover, error) {
	value := os.Getenv(handoverEnv)
	if value == "" {
		return nil, nil
	}
	// Not for the processes of containers.
	if err := os.Unsetenv(handoverEnv); err != nil {
		return nil, err
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("cannot take over: %s=%q is no descriptor", handoverEnv, value)
	}
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("cannot take over: %w", err)
	}
	h, err := decodeHandover(b)
	if err != nil {
		return nil, fmt.Errorf("cannot take over: %w", err)
	}
	for _, fd := range h.descriptors() {
		// Containers must not get them.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return nil, fmt.Errorf("cannot take over descriptor %d: %w", fd, err)
		}
	}
	return h, nil
}

func decodeHandover(b []byte) (*handover, error) {
	var h handover
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, err
	}
	if h.Version < 1 || h.Version > handoverVersion {
		return nil, fmt.Errorf("the handover has version %d, want 1 to %d", h.Version, handoverVersion)
	}
	seen := make(map[int]bool)
	for _, fd := range h.descriptors() {
		if fd < 3 || seen[fd] {
			return nil, fmt.Errorf("the handover names descriptor %d, which can't be", fd)
		}
		seen[fd] = true
	}
	return &h, nil
}

// take returns what was kept of a container, if it was handed over. It is the
// caller's from then on.
func (h *handover) take(id string) (k kept, ok bool) {
	if h == nil {
		return noneKept, false
	}
	if k, ok = h.Containers[id]; !ok {
		return noneKept, false
	}
	delete(h.Containers, id)
	return k, true
}

// execGroups are the cgroups of the execs that go on.
func (h *handover) execGroups() map[string]bool {
	if h == nil {
		return nil
	}
	groups := make(map[string]bool)
	for _, e := range h.Execs {
		groups[e.Group] = true
	}
	return groups
}

// close closes what nobody took.
func (h *handover) close() {
	for _, k := range h.Containers {
		k.close()
	}
	h.Containers = nil
}

func (k *kept) close() {
	for _, fd := range []*int{&k.Stdout, &k.Stderr, &k.Stdin, &k.Log} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	for _, a := range k.Attachments {
		closeFiles(a.files())
	}
	k.Attachments = nil
}

// sockets makes the shim's sockets of the descriptors handed over.
func (h *handover) sockets() (*net.UnixListener, *net.UnixConn, error) {
	socket, mail := os.NewFile(uintptr(h.Socket), shim.SocketName), os.NewFile(uintptr(h.FDs), shim.FDsName)
	defer socket.Close()
	defer mail.Close()
	l, err := net.FileListener(socket)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot take over the socket: %w", err)
	}
	c, err := net.FilePacketConn(mail)
	if err != nil {
		l.Close()
		return nil, nil, fmt.Errorf("cannot take over the socket of descriptors: %w", err)
	}
	ul, isUnix := l.(*net.UnixListener)
	fds, isUnixgram := c.(*net.UnixConn)
	if !isUnix || !isUnixgram {
		l.Close()
		c.Close()
		return nil, nil, errors.New("cannot take over the sockets: they are of another kind")
	}
	return ul, fds, nil
}
