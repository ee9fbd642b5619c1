package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
)

// Containers run on while there is no `berth cri`, and the next one knows how
// those ended that did meanwhile.
func TestKilled(t *testing.T) {
	n := newNode(t)
	web := n.run(t, "web", "server", map[string]any{"image": map[string]any{"image": nginxImage}})
	ends := n.run(t, "ends", "waits", map[string]any{
		"image":   map[string]any{"image": busyboxImage},
		"command": []string{"sh", "-c", "echo begun; until [ -e /go ]; do sleep 0.1; done; echo ended; exit 3"},
	})
	var sandbox struct {
		Status struct{ Network struct{ IP string } }
	}
	n.ask(t, &sandbox, "inspectp", web.id)
	server, waits := n.pid(t, web), n.pid(t, ends)

	n.kill(t)
	expect(t, "page while there is no berth", get(t, "http://"+sandbox.Status.Network.IP), "this is nginx\n")
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/go", waits), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, waits)
	n.start(t)
	n.waitUntilServing(t)

	expect(t, "process of the server", n.pid(t, web), server)
	expect(t, "output of exec", n.exec1(t, web, "echo", "hello"), "hello")
	expect(t, "containers that run", n.call(t, "ps", "--quiet", "--no-trunc"), web.containerID)
	var container struct {
		Status struct {
			State, Reason string
			ExitCode      int
		}
	}
	n.ask(t, &container, "inspect", ends.containerID)
	expect(t, "the container that ended", container.Status, struct {
		State, Reason string
		ExitCode      int
	}{"CONTAINER_EXITED", "Error", 3})
	expect(t, "its log", n.call(t, "logs", ends.containerID), "begun\nended")
	n.call(t, "rmp", "--force", "--all")
}

// pid is the first process of the pod's container.
func (n *node) pid(t *testing.T, p pod) int {
	t.Helper()
	var container struct{ Info struct{ PID int } }
	n.ask(t, &container, "inspect", p.containerID)
	return container.Info.PID
}

// awaitEnd waits until a process has ended, be it not reaped.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, fs.ErrNotExist) || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d goes on: %s", pid, stat)
		}
	}
}
