package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// AnswerTime is how long a shim may take to say that it is there. What takes long is
// waited for as long as it says so.
const AnswerTime = 10 * time.Second

// MuteError says that there is a shim which does not answer, be it stopped or stuck.
type MuteError struct {
	PID int // 0: not known
}

func (e *MuteError) Error() string {
	if e.PID == 0 {
		return "the shim does not answer, and which process it is cannot be seen"
	}
	return fmt.Sprintf("the shim (process %d) does not answer: it may be stopped (kill -CONT %d lets it go on) or hang (kill -KILL %d ends it; containers run on, and another shim takes them over)",
		e.PID, e.PID, e.PID)
}

// Answers asks the shim whether it is there. It returns a *MuteError if that has no
// answer for AnswerTime.
func (c *Client) Answers(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	_, err := c.ping(limited)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.peer == nil {
			return &MuteError{}
		}
		return &MuteError{PID: int(c.peer.Pid)}
	}
	return err
}

// listener is the process at the other end of a connection; 0: it can't be seen.
func listener(c net.Conn) int {
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	if err := raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil { //nolint:gosec // a descriptor fits
			pid = int(cred.Pid)
		}
	}); err != nil {
		return 0
	}
	return pid
}
