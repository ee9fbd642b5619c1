package shim

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrNotFound: the shim knows no container (or exec) of that id.
	ErrNotFound = errors.New("not found")
	// ErrExists: there is a container of that id.
	ErrExists = errors.New("already exists")
	// ErrGone: the connection was lost while a call was under way, so it is
	// not known whether it took effect. List tells.
	ErrGone = errors.New("connection to the shim lost")
	// ErrState: the container is not in the state the call needs.
	ErrState = errors.New("wrong state")
	// ErrUnsupported: the shim is of an older version that can't do that.
	ErrUnsupported = errors.New("not supported by this version of the shim")
)

// Reasons of a StartError.
const (
	CommandNotFound  = "CommandNotFound"  // no such file, or not in $PATH
	PermissionDenied = "PermissionDenied" // found, but not executable for the user
	StartFailed      = "StartFailed"      // anything else: mounts, users, limits, hooks, devices
)

// StartError says why a container or an exec could not be run. Nothing is left
// of it.
type StartError struct {
	Reason  string // one of the constants above
	Message string // in runc's words, for the status of the container
}

func (e *StartError) Error() string { return e.Message }

// fromRPC turns an error of the transport into one of this package.
func fromRPC(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ttrpc.ErrClosed), errors.Is(err, ttrpc.ErrStreamClosed), errors.Is(err, ttrpc.ErrServerClosed):
		return ErrGone
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		// The transport's own errors (EOF, EPIPE, reset) mean the same.
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	kind, ok := kinds[st.Code()]
	if !ok {
		return errors.New(st.Message())
	}
	return &remoteError{kind: kind, message: st.Message()}
}

// kinds are the sentinels that cross the wire.
var kinds = map[codes.Code]error{
	codes.NotFound:           ErrNotFound,
	codes.AlreadyExists:      ErrExists,
	codes.FailedPrecondition: ErrState,
	codes.Unimplemented:      ErrUnsupported,
	codes.Canceled:           context.Canceled,
	codes.DeadlineExceeded:   context.DeadlineExceeded,
}

// remoteError is an error the shim returned, with its sentinel restored.
type remoteError struct {
	kind    error
	message string
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.kind }

// ToRPC is fromRPC's opposite, for the server.
func ToRPC(err error) error {
	if err == nil {
		return nil
	}
	for code, kind := range kinds {
		if errors.Is(err, kind) {
			return status.Error(code, err.Error())
		}
	}
	return status.Error(codes.Unknown, err.Error())
}
