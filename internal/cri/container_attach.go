package cri

import (
	"context"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remotecommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/berth-run/berth/internal/shim"
)

// Attach registers an attachment and returns the URL to stream it.
func (s *Service) Attach(_ context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if _, err := s.running(r.GetContainerId()); err != nil {
		return nil, err
	}
	return s.stream.Attach(r)
}

// Attach joins the streams of a container's first process until it ends or the
// client leaves.
func (r streamRuntime) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := r.running(id)
	if err != nil {
		return err
	}
	sizes, stop := terminalSizes(resize)
	defer stop()
	st := streamsOf(in, out, errOut, tty, sizes)
	return r.cfg.Shim.Attach(ctx, shim.AttachRequest{
		ID: c.id, Stdin: st.stdin, Stdout: st.stdout, Stderr: st.stderr, Resize: st.resize,
	})
}
