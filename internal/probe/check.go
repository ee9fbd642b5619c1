package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/httpget"
	"github.com/berth-run/berth/internal/lifecycle"
)

// maxBody limits what is read of an answer or kept of a command's output.
const maxBody = 10 << 10

// tries is how often a check is tried that can't be carried out.
const tries = 3

// verdict is what one check found.
type verdict struct {
	ok      bool
	warning bool   // ok, and something is odd
	void    bool   // it could not be carried out; nothing is known
	output  string // for people
}

func passed(output string) verdict { return verdict{ok: true, output: output} }
func failed(output string) verdict { return verdict{output: output} }
func void(err error) verdict       { return verdict{void: true, output: err.Error()} }

// checker carries out checks of one probe. ctx ends at the check's time-out,
// and earlier when the probe is no longer wanted.
type checker interface {
	check(ctx context.Context, timeout time.Duration) verdict
}

// unable is the checker of a probe that can't be carried out.
type unable struct{ err error }

func (u unable) check(context.Context, time.Duration) verdict { return void(u.err) }

// checkers makes the checkers of all kinds of handlers.
type checkers struct {
	exec    Execer
	clients *httpget.Clients
}

// of returns the checker for a probe.
func (c *checkers) of(container *corev1.Container, p *lifecycle.Probe) checker {
	h := p.Spec.ProbeHandler
	switch {
	case h.Exec != nil:
		return newExecCheck(c.exec, p.Key.ContainerID, h.Exec.Command, container)
	case h.HTTPGet != nil:
		return newHTTPCheck(c.clients, h.HTTPGet, container, p.IP)
	case h.TCPSocket != nil:
		return newTCPCheck(h.TCPSocket, container, p.IP)
	case h.GRPC != nil:
		return newGRPCCheck(h.GRPC, p.IP)
	}
	return unable{fmt.Errorf("the %s probe of container %q has no handler", p.Key.Kind, p.Container)}
}

// containerNamed finds a container of any kind that may have probes; nil: none.
func containerNamed(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// timedOut says that err comes from the end of the check's time.
func timedOut(ctx context.Context, err error) bool {
	// The timer of a connection may be quicker than the context's.
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// lack says that this process or machine lacks what a connection needs: file
// descriptors, memory, local ports. It tells nothing of the container, which must
// not be restarted for it.
func lack(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// shorten cuts a text to at most limit bytes of valid UTF-8.
func shorten(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	// A copy, so that the long text can go.
	return strings.Clone(s[:cut]) + "…"
}
