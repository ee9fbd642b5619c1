package shim_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
)

// A first process that ends at any moment of its making has ended: its container
// does not wait for a start for ever.
func TestFirstProcessEndsWhileItIsMade(t *testing.T) {
	n := newNode(t)
	for i := range 40 {
		id := fmt.Sprintf("c%d", i)
		kill := fmt.Sprintf(`pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/'); (sleep %.3f; kill -9 $pid) >/dev/null 2>&1 </dev/null &`, float64(i)/1000)
		r := n.bundle(id, func(s *specs.Spec) {
			s.Process.Terminal = true // takes longer to make
			s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", kill}}}}
		}, "init")
		r.TTY = true
		if _, err := n.Create(n.ctx, r); err != nil {
			continue // too early for a container; cleanup finds what is left
		}
		if e := n.wait(id); !e.Known || e.Signal != int32(syscall.SIGKILL) {
			t.Errorf("killed after %d ms: exit is %+v", i, e)
		}
		list, err := n.List(n.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.State != shim.Exited {
				t.Errorf("killed after %d ms, it is %s", i, s.State)
			}
		}
		if _, err := n.Start(n.ctx, id); err == nil {
			t.Errorf("killed after %d ms, it starts", i)
		}
		if err := n.Delete(n.ctx, id); err != nil {
			t.Error(err)
		}
	}
}

// What a container wrote to its terminal while no shim was there is read by the
// next one, even if the container has ended.
func TestTerminalKeepsLastWords(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", func(s *specs.Spec) { s.Process.Terminal = true }, "farewell")
	r.TTY = true
	n.start(r)
	n.logHas(r.LogPath, "ready")
	list, err := n.List(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	n.killShim()
	if err := syscall.Kill(list[0].PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(list[0].PID, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("a"); e.Known {
		t.Errorf("exit is %+v, want an unknown one", e)
	}
	log := n.read(r.LogPath)
	if !strings.Contains(log, "stdout F bye\r\n") || strings.Contains(log, "berth:") {
		t.Errorf("log:\n%s", log)
	}
}
