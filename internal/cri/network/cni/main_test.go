package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/cri/network"
	"github.com/berth-run/berth/internal/testutil/namespaces"
)

// The main thread must not wander into other namespaces: it can't end with its
// goroutine, and it is the one that /proc shows for the process. A lock taken
// while packages are initialized keeps it with the main goroutine.
var _ = func() bool { runtime.LockOSThread(); return true }()

// The network namespace of the tests plays the host.
func TestMain(m *testing.M) {
	if text := os.Getenv(setupEnv); text != "" {
		os.Exit(setupAndDie(text))
	}
	os.Exit(namespaces.Main(m, stack.close))
}

// realPlugins is where Debian's package of the CNI project's plugins puts them.
const realPlugins = "/usr/lib/cni"

func needPlugins(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and links")
	}
	if _, err := os.Stat(realPlugins + "/bridge"); err != nil {
		t.Fatalf("needs the package containernetworking-plugins (hack/install-deps.sh): %v", err)
	}
}

// site is a machine's CNI: configurations, plugins, and what berth keeps.
type site struct {
	t                     testing.TB
	conf, bin, state, log string
	ipam                  string // what host-local keeps
}

func newSite(t testing.TB) *site {
	needPlugins(t)
	dir := t.TempDir()
	s := &site{t: t, conf: dir + "/net.d", bin: dir + "/bin", state: dir + "/state", log: dir + "/log", ipam: dir + "/ipam"}
	for _, d := range []string{s.conf, s.bin} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *site) config() Config {
	return Config{
		StateDir: s.state, ConfDir: s.conf, BinDirs: []string{s.bin, realPlugins},
		Log: slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// open makes a Network, as a restarted berth does.
func (s *site) open() *Network {
	s.t.Helper()
	n, err := New(s.config())
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *site) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.conf, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// empty removes all configurations.
func (s *site) empty() {
	s.t.Helper()
	if err := os.RemoveAll(s.conf); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Mkdir(s.conf, 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// plugin writes a plugin in sh. $conf is what it was told, $log a file that says
// what was run; it answers with $answer if its script does not end before.
func (s *site) plugin(name, script string) {
	s.t.Helper()
	text := "#!/bin/sh\nconf=$(cat); log=" + s.log + "\n" +
		"echo " + name + " $CNI_COMMAND ${CNI_NETNS:-none} >>$log\n" +
		"answer='{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"192.0.2.7/24\"}]}'\n" + script + "\necho \"$answer\"\n"
	tmp := filepath.Join(s.bin, "."+name)
	if err := os.WriteFile(tmp, []byte(text), 0o755); err != nil { //nolint:gosec // a program
		s.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(s.bin, name)); err != nil {
		s.t.Fatal(err)
	}
}

// ran tells what plugins were run, with the sandbox's namespace as NS.
func (s *site) ran(ns string) string {
	s.t.Helper()
	raw, err := os.ReadFile(s.log)
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return strings.ReplaceAll(string(raw), ns, "NS")
}

// list renders a configuration of plugins, each an object.
func list(name string, plugins ...string) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [%s]}`, name, strings.Join(plugins, ", "))
}

// bridge renders the bridge plugin with addresses of these ranges.
func (s *site) bridge(link string, ranges ...string) string {
	var sets []string
	for _, r := range ranges {
		sets = append(sets, fmt.Sprintf(`[{"subnet": %q}]`, r))
	}
	return fmt.Sprintf(`{"type": "bridge", "bridge": %q, "isGateway": true, "ipam": {"type": "host-local", "dataDir": %q, "ranges": [%s], "routes": [{"dst": "0.0.0.0/0"}]}}`,
		link, s.ipam, strings.Join(sets, ", "))
}

// addressesTaken are those that host-local has given out.
func (s *site) addressesTaken(name string) []string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.ipam, name, "[0-9a-f]*[.:]*"))
	if err != nil {
		s.t.Fatal(err)
	}
	return files
}

// recorded tells for how many sandboxes berth remembers something.
func (s *site) recorded() int {
	s.t.Helper()
	n := 0
	for _, pattern := range []string{"sandboxes/*", "cache/results/*"} {
		files, err := filepath.Glob(filepath.Join(s.state, pattern))
		if err != nil {
			s.t.Fatal(err)
		}
		n += len(files)
	}
	return n
}

// reach serves at an address in the namespace and connects from the host.
func reach(t testing.TB, ns string, ip netip.Addr) {
	t.Helper()
	var l net.Listener
	err := namespaces.WithinNet(ns, func() (err error) { l, err = net.Listen("tcp", net.JoinHostPort(ip.String(), "0")); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
	}()
	c, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
	if err != nil {
		t.Errorf("the sandbox can't be reached: %v", err)
		return
	}
	c.Close()
}

func request(id, ns string) network.Request {
	return network.Request{
		ID: id, Name: "default/web", NetNS: ns,
		Pod: network.Pod{Namespace: "default", Name: "web", UID: "uid-1"},
	}
}

func mustSetup(t testing.TB, n interface {
	Setup(context.Context, network.Request) (network.Result, error)
}, r network.Request) []netip.Addr {
	t.Helper()
	res, err := n.Setup(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res.IPs
}

func mustTeardown(t testing.TB, n interface {
	Teardown(context.Context, string) error
}, id string) {
	t.Helper()
	if err := n.Teardown(context.Background(), id); err != nil {
		t.Fatal(err)
	}
}

func decode(t testing.TB, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}
