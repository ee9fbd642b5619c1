package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

// portForwardLinger is how long the client's side of a forwarded connection may
// go on after the program has closed its own.
const portForwardLinger = time.Second

// PortForward registers a forwarding and returns the URL to stream it.
func (s *Service) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	sb, err := s.readySandbox(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return s.stream.PortForward(&runtimeapi.PortForwardRequest{PodSandboxId: sb.id, Port: r.GetPort()})
}

func (s *Service) readySandbox(id string) (*sandbox, error) {
	sb, err := s.sandbox(id)
	if err != nil {
		return nil, err
	}
	if sb.state() != store.SandboxReady {
		return nil, coded(codes.FailedPrecondition, "sandbox %s is not ready", sb.id)
	}
	return sb, nil
}

// PortForward copies between stream and a port of the sandbox's localhost until
// both directions have ended or ctx has.
func (r streamRuntime) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	sb, err := r.readySandbox(id)
	if err != nil {
		return err
	}
	conn, err := r.dialSandbox(ctx, sb, port)
	if err != nil {
		return fmt.Errorf("cannot forward to port %d of sandbox %s: %w", port, sb.id, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close(); stream.Close() })()

	fromClient := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, stream)
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.CloseWrite() // the program sees the end of its input and may still answer
		}
		fromClient <- err
	}()
	_, err = io.Copy(stream, conn)
	linger := time.NewTimer(portForwardLinger)
	defer linger.Stop()
	select {
	case clientErr := <-fromClient:
		return errors.Join(err, clientErr)
	case <-linger.C:
	}
	// Closing both ends, which the deferred calls do again, ends the other copy.
	conn.Close()
	stream.Close()
	<-fromClient
	return err
}

// dialSandbox connects inside the sandbox's network, IPv4 first. A socket stays
// in the namespace it was made in, so only the dialling happens there.
func (s *Service) dialSandbox(ctx context.Context, sb *sandbox, port int32) (conn net.Conn, err error) {
	dial := func() error {
		var d net.Dialer
		for _, host := range []string{"127.0.0.1", "::1"} {
			c, dialErr := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
			if dialErr == nil {
				conn = c
				return nil
			}
			err = errors.Join(err, dialErr)
		}
		return err
	}
	if sb.hostNetwork() {
		err := dial()
		return conn, err
	}
	if err := inNamespaces(s.namespaceDir(sb.id), []nsKind{nsNet}, dial); err != nil {
		return nil, err
	}
	return conn, nil
}
