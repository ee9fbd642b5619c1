package criserver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// calls logs what was called and gives each error its code.
type calls struct{ log *slog.Logger }

func (c *calls) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	began := time.Now()
	resp, err := handle(ctx, req)
	err = coded(err)
	c.note(ctx, info.FullMethod, began, err)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (c *calls) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	began := time.Now()
	err := coded(handle(srv, stream))
	c.note(stream.Context(), info.FullMethod, began, err)
	return err
}

func (c *calls) note(ctx context.Context, method string, began time.Time, err error) {
	if err != nil {
		c.log.DebugContext(ctx, "call failed", "method", method, "took", time.Since(began), "err", err)
		return
	}
	c.log.DebugContext(ctx, "call done", "method", method, "took", time.Since(began))
}

// coded gives an error the gRPC code that is somewhere in its chain, and all of
// its text.
func coded(err error) error {
	if err == nil {
		return nil
	}
	if st, ok := status.FromError(err); ok {
		return st.Err()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return errgrpc.ToGRPC(err) // containerd's errors; anything else is Unknown
}
