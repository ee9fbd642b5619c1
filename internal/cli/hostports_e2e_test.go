package cli

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// The first of two pods in a file gets the port of the host; what became of the
// other one is told as its own end, and not as one of long ago.
func TestSecondPodWithAHostPortFails(t *testing.T) {
	n := newNode(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	with := func(name string) string {
		return pod(name, "Always", 1, "serve") + fmt.Sprintf("    ports: [{containerPort: 8080, hostPort: %d}]\n", port)
	}
	out, code := n.berth("run", "--until", "ready", n.file(with("z-first")+with("a-second")))
	want := fmt.Sprintf("a-second: failed: NodePorts: Pod was rejected: host port %d/TCP is taken by pod default/z-first", port)
	if code != 1 || !strings.Contains(out, want) || strings.Contains(out, "had ended before") {
		t.Errorf("exit code %d, want 1 and %q:\n%s", code, want, out)
	}
}
