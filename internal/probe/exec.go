package probe

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Execer runs commands in containers.
type Execer interface {
	// Exec runs command in a container and returns its combined output, cut to
	// a reasonable length, and its exit code. err says that the command could
	// not be run or that nobody knows how it ended. When ctx ends, Exec kills
	// the command's whole process tree, reaps it, and only then returns.
	Exec(ctx context.Context, containerID string, command []string) (output []byte, exitCode int32, err error)
}

// execCheck runs a command; exit code 0 is success.
type execCheck struct {
	exec        Execer
	containerID string
	command     []string
}

func newExecCheck(exec Execer, containerID string, command []string, container *corev1.Container) checker {
	e := &execCheck{exec: exec, containerID: containerID, command: make([]string, len(command))}
	for i, arg := range command {
		e.command[i] = expand(arg, container)
	}
	return e
}

func (e *execCheck) check(ctx context.Context, timeout time.Duration) verdict {
	output, code, err := e.exec.Exec(ctx, e.containerID, e.command)
	text := string(output[:min(len(output), maxBody)])
	switch {
	case err == nil && code == 0:
		return passed(text)
	case timedOut(ctx, err):
		return e.late(timeout)
	case err != nil:
		return void(err)
	case text == "":
		return failed(fmt.Sprintf("command exited with code %d", code))
	}
	return failed(text)
}

// late is the verdict on a command that ran out of time.
func (e *execCheck) late(timeout time.Duration) verdict {
	return failed(fmt.Sprintf("command timed out after %s: %s", timeout, strings.Join(e.command, " ")))
}

// expand replaces $(NAME) by the container's variables, as far as they are given
// as plain values; one that comes from elsewhere counts as empty, as in the
// kubelet. $$ stands for $; unknown names stay as they are.
func expand(arg string, container *corev1.Container) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(arg, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			arg = after[1:]
		case strings.HasPrefix(after, "(") && closed:
			b.WriteString(variable(name, container))
			arg = rest
		default:
			b.WriteByte('$')
			arg = after
		}
	}
}

// variable is the value of a container's variable, the last one of the name.
func variable(name string, container *corev1.Container) string {
	if container != nil {
		for i := len(container.Env) - 1; i >= 0; i-- {
			if container.Env[i].Name == name {
				return container.Env[i].Value
			}
		}
	}
	return "$(" + name + ")"
}
