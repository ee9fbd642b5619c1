package remote

import (
	"bytes"
	"context"
	"errors"
	"time"
)

// maxExecOutput is how much of a command's output is handed on, in bytes.
const maxExecOutput = 10 << 10

// exitStatus is the error of a command that ended with another code than 0.
type exitStatus interface{ ExitStatus() int }

// Exec runs a command in a container; see podruntime.Runtime. A runtime behind
// a socket is told the time-out in whole seconds, rounded up.
func (r *Runtime) Exec(ctx context.Context, containerID string, command []string) (output []byte, exitCode int32, err error) {
	var timeout time.Duration // none
	if deadline, ok := ctx.Deadline(); ok {
		timeout = (time.Until(deadline) + time.Second).Truncate(time.Second)
		if timeout <= 0 {
			return nil, 0, context.DeadlineExceeded
		}
	}
	stdout, stderr, err := r.cfg.Service.ExecSync(ctx, containerID, command, timeout)
	output = bytes.Join([][]byte{stdout, stderr}, nil)
	if len(output) > maxExecOutput {
		output = output[:maxExecOutput]
	}
	var status exitStatus
	switch {
	case err == nil:
		return output, 0, nil
	case errors.As(err, &status):
		return output, int32(status.ExitStatus()), nil
	case ctx.Err() != nil:
		return output, 0, ctx.Err()
	}
	return output, 0, err
}
