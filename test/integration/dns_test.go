package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// On a machine with systemd-resolved, as Ubuntu is, pods ask the servers behind
// it: its own address is on the machine's loopback. A change is heeded.
func TestPodsAskTheServersBehindTheMachinesOwn(t *testing.T) {
	n := newNode(t)
	etc := filepath.Join(t.TempDir(), "resolv.conf")
	const behind = "/run/systemd/resolve/resolv.conf"
	if err := os.MkdirAll(filepath.Dir(behind), 0o755); err != nil { // a tmpfs of the tests' own
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll("/run/systemd") })
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(etc, "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch home.example\n")
	write(behind, "nameserver 192.0.2.53\nsearch home.example\n")
	if err := unix.Mount(etc, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/etc/resolv.conf", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct{ name, spec, behind, want, not string }{
		{"dns-behind", "hostNetwork: false", "nameserver 192.0.2.53\n", "nameserver 192.0.2.53", "127.0.0.53"},
		{"dns-moved", "hostNetwork: false", "nameserver 192.0.2.54\n", "nameserver 192.0.2.54", "127.0.0.53"},
		{"dns-host", "hostNetwork: true", "nameserver 192.0.2.54\n", "nameserver 127.0.0.53", "192.0.2.54"},
	} {
		write(behind, c.behind)
		p := n.run(t, onePod(c.name, "args: [resolv]", "restartPolicy: Never", c.spec))
		p.succeeded(t)
		if out := p.logs(t, "app"); !strings.Contains(out, c.want) || strings.Contains(out, c.not) {
			t.Errorf("%s: the pod has %q, want %q", c.name, out, c.want)
		}
		p.stop(t)
	}
	if err := os.Remove(behind); err != nil {
		t.Fatal(err)
	}
	p := n.run(t, onePod("dns-none", "args: [resolv]", "restartPolicy: Never"))
	if message := p.event(t, "DNSConfigForming"); !strings.Contains(message, "127.0.0.53") || !strings.Contains(message, "dnsConfig.nameservers") {
		t.Errorf("the event says %q", message)
	}
	p.succeeded(t)
	p.stop(t)
}
