package cli

import (
	"io"

	"golang.org/x/sys/unix"
)

// readerLeft says whether nobody reads any more what is written to one of outs.
// A SIGPIPE alone does not tell: it comes from a socket as well, when the agent
// at its other end has left.
func readerLeft(outs ...io.Writer) bool {
	for _, out := range outs {
		f, ok := asFile(out)
		if !ok {
			continue
		}
		fds := []unix.PollFd{{Fd: int32(f.Fd())}} //nolint:gosec // a descriptor fits
		if n, err := unix.Poll(fds, 0); err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			return true
		}
	}
	return false
}
