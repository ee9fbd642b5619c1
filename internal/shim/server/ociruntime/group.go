package ociruntime

import (
	"bytes"
	"context"
	"os/exec"
	"strings"

	"github.com/containerd/go-runc"
)

// ExecGroups says how a program is told to run a process of Exec in a cgroup below
// the container's.
type ExecGroups int

const (
	NoGroups    ExecGroups = iota // it can't
	PlainGroups                   // by the path below the container's
	NamedGroups                   // on cgroup v1 by the hierarchy, too
)

// AskExecGroups asks the program: the option is younger than the others and in no
// specification.
func AskExecGroups(ctx context.Context, program string) (ExecGroups, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var help bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "exec", "--help")
	cmd.Stdout, cmd.Stderr = &help, &help
	ended, err := runc.Monitor.Start(cmd)
	if err != nil {
		return NoGroups, err
	}
	if _, err := runc.Monitor.Wait(cmd, ended); err != nil {
		return NoGroups, err
	}
	switch text := help.String(); {
	case !strings.Contains(text, "--cgroup"):
		return NoGroups, nil
	case strings.Contains(text, "controller>"):
		return NamedGroups, nil
	}
	return PlainGroups, nil
}

// Option is what Exec is given for the group of that name. controller is that of the
// hierarchy it is in, empty on cgroup v2; the answer is empty if it can't be used.
func (g ExecGroups) Option(controller, name string) string {
	switch {
	case g == NoGroups, controller != "" && g == PlainGroups:
		return ""
	case controller != "":
		return controller + ":" + name
	}
	return name
}
