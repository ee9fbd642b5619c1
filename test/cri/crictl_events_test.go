package cri

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// events is a crictl that follows the events of the runtime.
type events struct {
	cmd *exec.Cmd
	out *output
}

// watchEvents starts to follow; check must be called.
func (n *node) watchEvents(t *testing.T) *events {
	t.Helper()
	e := &events{cmd: n.crictl(t, "events"), out: &output{}}
	e.cmd.Stdout, e.cmd.Stderr = e.out, e.out
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return e
}

// check compares the events of a pod that is no more with what happened to it.
func (e *events) check(t *testing.T, p pod) {
	e.out.await(t, `"containerId": *"`+p.id+`",\s+"containerEventType": *"CONTAINER_DELETED_EVENT"`)
	if err := e.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	_ = e.cmd.Wait() // crictl calls its end by a signal one
	var got []string
	names := map[string]string{p.id: "pod", p.containerID: "container"}
	for d := json.NewDecoder(strings.NewReader(e.out.String())); ; {
		var event struct{ ContainerID, ContainerEventType string }
		if d.Decode(&event) != nil {
			break
		}
		if name := names[event.ContainerID]; name != "" {
			got = append(got, name+" "+event.ContainerEventType)
		}
	}
	want := []string{
		"pod CONTAINER_CREATED_EVENT", "pod CONTAINER_STARTED_EVENT",
		"container CONTAINER_CREATED_EVENT", "container CONTAINER_STARTED_EVENT", "container CONTAINER_STOPPED_EVENT",
		"pod CONTAINER_STOPPED_EVENT", "container CONTAINER_DELETED_EVENT", "pod CONTAINER_DELETED_EVENT",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events of the pod: %q, want %q", got, want)
	}
}
