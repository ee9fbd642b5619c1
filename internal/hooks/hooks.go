// Package hooks runs the lifecycle hooks of containers: postStart and preStop,
// as a command in the container, an HTTP request or a sleep. Whether and when a
// hook runs, and what its failure means, is decided in package lifecycle.
//
// A hook lasts until it has ended or its context has: nothing of it goes on
// after Run has returned.
package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/httpget"
	"github.com/berth-run/berth/internal/lifecycle"
)

// maxOutput limits what of a command's output gets into the log, in bytes.
const maxOutput = 1 << 10

// maxBody is how much of an HTTP answer is read; more is of no interest.
const maxBody = 10 << 10

// Execer runs commands in containers.
type Execer interface {
	// Exec runs command in a container and returns its combined output, cut to
	// a reasonable length, and its exit code. err says that the command could
	// not be run or that nobody knows how it ended. When ctx ends, Exec kills
	// the command's whole process tree, reaps it, and only then returns.
	Exec(ctx context.Context, containerID string, command []string) (output []byte, exitCode int32, err error)
}

// Hook is one hook to run.
type Hook struct {
	Pod         *corev1.Pod
	Container   *corev1.Container
	ContainerID string
	// IP is the pod's address, the host's on the host network; may be empty.
	IP string
	// Handler says what to do. It is the container's preStop hook if that is
	// what the container's Lifecycle.PreStop points to, else postStart.
	Handler *corev1.LifecycleHandler
}

// Runner runs hooks. It is safe for concurrent use.
type Runner struct {
	exec   Execer
	client *http.Client
	log    *slog.Logger
}

// New returns a Runner; exec and log are required.
func New(exec Execer, log *slog.Logger) *Runner {
	return &Runner{exec: exec, client: httpget.NewClients().HTTP1, log: log}
}

// Run runs a hook and returns when it has ended. Its error, if any, is a
// *lifecycle.Failed with the reason PostStartHookError or PreStopHookError.
// Cancelling ctx cuts the hook off with all that it started.
func (r *Runner) Run(ctx context.Context, h Hook) error {
	err := r.run(ctx, h)
	if err == nil {
		return nil
	}
	failed := &lifecycle.Failed{Reason: lifecycle.ReasonPostStartHookError, Message: "postStart hook: " + err.Error()}
	if h.Container.Lifecycle != nil && h.Handler == h.Container.Lifecycle.PreStop {
		failed.Reason, failed.Message = lifecycle.ReasonPreStopHookError, "preStop hook: "+err.Error()
	}
	return failed
}

func (r *Runner) run(ctx context.Context, h Hook) error {
	switch {
	case h.Handler == nil:
		return errors.New("has no handler")
	case h.Handler.Exec != nil:
		return r.command(ctx, h)
	case h.Handler.HTTPGet != nil:
		return r.request(ctx, h)
	case h.Handler.Sleep != nil:
		return sleep(ctx, time.Duration(h.Handler.Sleep.Seconds)*time.Second)
	}
	return errors.New("has no handler that berth knows; use exec, httpGet or sleep")
}

// command runs a hook's command. What it wrote stays out of the error, which gets into
// events and statuses: it may hold secrets. Who wants it has the log.
func (r *Runner) command(ctx context.Context, h Hook) error {
	command := h.Handler.Exec.Command
	output, code, err := r.exec.Exec(ctx, h.ContainerID, command)
	if err == nil && code == 0 {
		return nil
	}
	r.log.Debug("the command of a hook failed", "pod", h.Pod.Namespace+"/"+h.Pod.Name, "uid", h.Pod.UID, "container", h.Container.Name,
		"command", command, "code", code, "error", err, "output", string(output[:min(len(output), maxOutput)]))
	name := strings.Join(command, " ")
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("command %q was %w", name, cutOff(ctx))
	case err != nil:
		return fmt.Errorf("cannot run command %q: %w", name, err)
	}
	return fmt.Errorf("command %q exited with code %d", name, code)
}

// request asks an HTTP server. Any answer is success, whatever its status: so it
// is in the kubelet, and servers rely on it.
func (r *Runner) request(ctx context.Context, h Hook) error {
	req, err := httpget.Request(h.Handler.HTTPGet, h.Container, h.IP, "lifecycle")
	if err != nil {
		return err
	}
	req = req.WithContext(ctx)
	err = r.do(req)
	if req.URL.Scheme == "https" && speaksPlainHTTP(err) {
		// Hooks over https were sent in clear text up to Kubernetes 1.24, and
		// the kubelet still falls back to it. A password must not go that way.
		req.URL.Scheme = "http"
		req.Header.Del("Authorization")
		err = r.do(req)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("request to %s was %w", req.URL, cutOff(ctx))
	}
	return err
}

func (r *Runner) do(req *http.Request) error {
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// The answer has come; a body that breaks off changes nothing about it.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
	return nil
}

// speaksPlainHTTP says that a server answered a TLS handshake in clear text.
// net/http has no error value for it.
func speaksPlainHTTP(err error) bool {
	return err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sleep of %s was %w", d, cutOff(ctx))
	}
}

// cutOff says why ctx has ended.
func cutOff(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("cut off at the end of its time")
	}
	return errors.New("cut off, it is no longer wanted")
}
