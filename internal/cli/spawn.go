package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/home"
	"github.com/berth-run/berth/internal/nodeapi"
)

// maxAgentLog is the size at which the log of background agents begins anew.
const maxAgentLog = 10 << 20

// exitInUse is how a background agent says that there is another one.
const exitInUse = 3

// spawn starts an agent in the background and returns when it answers. The error
// is home.ErrInUse if another one was faster.
func spawn(ctx context.Context, a *app, client *nodeapi.Client) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot start a background agent: %w", err)
	}
	log, err := openAgentLog(a.home)
	if err != nil {
		return fmt.Errorf("cannot start a background agent: %w", err)
	}
	defer log.Close()
	began, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("cannot start a background agent: %w", err)
	}
	cmd := exec.Command(self, append([]string{"agent"}, a.flags()...)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start a background agent: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		if v, err := ask(ctx, client); err == nil && v.PID == cmd.Process.Pid {
			return nil
		}
		select {
		case err := <-exited:
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == exitInUse {
				return home.ErrInUse
			}
			return fmt.Errorf("the background agent ended at once: %w%s", err, said(log, began))
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return fmt.Errorf("the background agent (process %d) does not answer; see %s", cmd.Process.Pid, log.Name())
		case <-time.After(pollEvery):
		}
	}
}

func openAgentLog(h home.Home) (*os.File, error) {
	if err := os.MkdirAll(h.Root, 0o711); err != nil { //nolint:gosec // containers' users pass through it
		return nil, err
	}
	path := h.AgentLog()
	flags := os.O_RDWR | os.O_CREATE | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > maxAgentLog {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}

// said is what an agent logged since, as the end of an error message.
func said(log *os.File, since int64) string {
	text, err := io.ReadAll(io.NewSectionReader(log, since, 64<<10))
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return ""
	}
	return ":\n" + strings.TrimSpace(string(text))
}

// living counts the pods that are neither terminal nor about to go.
func living(pods []*corev1.Pod) int {
	n := 0
	for _, p := range pods {
		if !isTerminal(&p.Status) {
			n++
		}
	}
	return n
}

func isTerminal(s *corev1.PodStatus) bool {
	return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
}
