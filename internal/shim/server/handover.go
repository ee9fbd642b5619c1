package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

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
}

// noneKept is of a container of which nothing is open.
var noneKept = kept{Stdout: -1, Stderr: -1, Stdin: -1, Log: -1}

// descriptors lists all that are handed over.
func (h *handover) descriptors() []int {
	fds := []int{h.Lock, h.Socket, h.FDs}
	for _, k := range h.Containers {
		for _, fd := range []int{k.Stdout, k.Stderr, k.Stdin, k.Log} {
			if fd >= 0 {
				fds = append(fds, fd)
			}
		}
	}
	return fds
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

// take returns what was kept of a container, nil if it was not handed over. It is
// the caller's from then on.
func (h *handover) take(id string) *kept {
	if h == nil {
		return nil
	}
	k, ok := h.Containers[id]
	if !ok {
		return nil
	}
	delete(h.Containers, id)
	return &k
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
