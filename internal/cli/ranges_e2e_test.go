package cli

import (
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestPodsOfBothFamilies(t *testing.T) {
	if off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6"); err != nil || strings.TrimSpace(string(off)) != "0" {
		t.Skipf("the kernel has no IPv6, or it is turned off: %s, %v", off, err)
	}
	n := newNode(t)
	const ranges = "10.223.77.0/24,fd5b:e27a:77::/64"
	n.must("run", "--network-cidr", ranges, "--detach", "--until", "ready", n.file(pod("web", "Always", 1, "serve")))
	reachable := func(name string) {
		t.Helper()
		ips := n.status(name).PodIPs
		if len(ips) != 2 || !strings.HasPrefix(ips[0].IP, "10.223.77.") || !strings.HasPrefix(ips[1].IP, "fd5b:e27a:77::") {
			t.Fatalf("pod %s has %v", name, ips)
		}
		for _, ip := range ips {
			resp, err := http.Get("http://" + net.JoinHostPort(ip.IP, "8080") + "/hostname")
			if err != nil {
				t.Errorf("pod %s at %s: %v", name, ip.IP, err)
				continue
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || strings.TrimSpace(string(body)) != name {
				t.Errorf("at %s answers %q, %v", ip.IP, body, err)
			}
		}
	}
	reachable("web")
	if out, code := n.berth("run", "--network-cidr", "10.223.77.0/24", n.file(pod("more", "Always", 1, "serve"))); code != 2 || !strings.Contains(out, "uses "+ranges) {
		t.Errorf("a run with another range ends with %d: %s", code, out)
	}
	// The next agent goes on with them, whether it is told or not.
	n.killAgent()
	n.must("run", "--detach", "--until", "ready", n.file(pod("next", "Always", 1, "serve")))
	reachable("web")
	reachable("next")
	// Once no pod lives, the range may be another one.
	n.must("rm", "--force", "--grace", "0s", "--all")
	n.must("run", "--network-cidr", "10.223.78.0/24", "--detach", "--until", "ready", n.file(pod("web", "Always", 1, "serve")))
	if ips := n.status("web").PodIPs; len(ips) != 1 || !strings.HasPrefix(ips[0].IP, "10.223.78.") {
		t.Errorf("in another range, the pod has %v", ips)
	}
	n.must("rm", "--force", "--grace", "0s", "--all")
}

// killAgent kills the agent of the root without a warning.
func (n *node) killAgent() {
	n.t.Helper()
	pid, err := strconv.Atoi(n.home().Owner())
	if err != nil {
		n.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
}
