package cri

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// codedError gives an error a code, for callers of the CRI, and leaves it what it
// is: its text is for people, also of those who call without gRPC.
type codedError struct {
	code codes.Code
	err  error
}

func (e *codedError) Error() string              { return e.err.Error() }
func (e *codedError) Unwrap() error              { return e.err }
func (e *codedError) GRPCStatus() *status.Status { return status.New(e.code, e.err.Error()) }

// coded is fmt.Errorf with a code.
func coded(code codes.Code, format string, args ...any) error {
	return &codedError{code, fmt.Errorf(format, args...)}
}
