package cni

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/cri/network"
	"github.com/berth-run/berth/internal/testutil/leak"
	"github.com/berth-run/berth/internal/testutil/namespaces"
)

// Real plugins connect a sandbox; after a restart of berth and with another
// configuration, or none, it is torn down with those that connected it.
func TestTornDownWithWhatItWasSetUpWith(t *testing.T) {
	for name, change := range map[string]func(*site){
		"the configuration is the same":  func(*site) {},
		"the folder is empty":            func(s *site) { s.empty() },
		"the folder is gone":             func(s *site) { os.RemoveAll(s.conf) },
		"the configuration is broken":    func(s *site) { s.write("10-net.conflist", "{") },
		"another configuration is first": func(s *site) { s.write("00-other.conf", `{"cniVersion": "1.0.0", "name": "other", "type": "nowhere"}`) },
		"it uses other addresses":        func(s *site) { s.write("10-net.conflist", list("other", s.bridge("cni9", "10.9.0.0/24"))) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.write("10-net.conflist", list("net", s.bridge("cni1", "10.81.0.0/24")))
			warm(t, s)
			leak.Check(t, leak.Scope{Dirs: []string{s.state}})
			ns := namespaces.NewNet(t)
			ips := mustSetup(t, s.open(), request("one", ns))
			if len(ips) != 1 || !netip.MustParsePrefix("10.81.0.0/24").Contains(ips[0]) {
				t.Fatalf("addresses %v", ips)
			}
			reach(t, ns, ips[0])
			change(s)
			n := s.open()
			mustTeardown(t, n, "one")
			mustTeardown(t, n, "one")
			if left := s.addressesTaken("net"); len(left) > 0 {
				t.Errorf("addresses are left: %v", left)
			}
			if n := s.recorded(); n > 0 {
				t.Errorf("%d files are left", n)
			}
		})
	}
}

// warm makes what all sandboxes of a configuration share: a plugin's own bridge
// stays.
func warm(t *testing.T, s *site) {
	t.Helper()
	n := s.open()
	mustSetup(t, n, request("warm", namespaces.NewNet(t)))
	mustTeardown(t, n, "warm")
}

// A sandbox whose namespace is gone already frees its address.
func TestTornDownWithoutANamespace(t *testing.T) {
	s := newSite(t)
	s.write("10-net.conflist", list("net", s.bridge("cni1", "10.81.0.0/24")))
	ns := namespaces.NewNet(t)
	mustSetup(t, s.open(), request("one", ns))
	namespaces.EndNet(ns)
	mustTeardown(t, s.open(), "one")
	if left := s.addressesTaken("net"); len(left) > 0 || s.recorded() > 0 {
		t.Errorf("addresses are left: %v; %d files", left, s.recorded())
	}
}

// Plugins hear of the pod what they ask for, and nothing else.
func TestPluginsAreToldOfThePod(t *testing.T) {
	s := newSite(t)
	s.plugin("curious", `printf %s "$conf" >$log.$CNI_COMMAND; printf %s "$CNI_ARGS $CNI_IFNAME $CNI_CONTAINERID $CNI_PATH" >$log.env`)
	s.plugin("plain", `printf %s "$conf" >$log.plain`)
	s.write("10-net.conflist", list("net",
		`{"type": "curious", "capabilities": {"portMappings": true, "bandwidth": true, "dns": true, "cgroupPath": true, "io.kubernetes.cri.pod-annotations": true, "ipRanges": true, "mac": false}}`,
		`{"type": "plain"}`))
	r := request("one", namespaces.NewNet(t))
	r.Ports = []network.PortMapping{
		{HostPort: 8080, ContainerPort: 80, Proto: network.TCP},
		{HostPort: 53, ContainerPort: 5353, Proto: network.UDP, HostIP: netip.MustParseAddr("127.0.0.1")},
	}
	r.Pod.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": "10M", "other": "text"}
	r.Pod.Cgroup = "/kubepods/pod1"
	r.Pod.DNS = network.DNS{Servers: []string{"10.0.0.10"}, Searches: []string{"svc.local"}, Options: []string{"ndots:5"}}
	n := s.open()
	mustSetup(t, n, r)

	read := func(suffix string) string {
		t.Helper()
		raw, err := os.ReadFile(s.log + suffix)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	want := decode(t, `{
		"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 53, "containerPort": 5353, "protocol": "udp", "hostIP": "127.0.0.1"}],
		"bandwidth": {"ingressRate": 10000000, "ingressBurst": 4294967295},
		"dns": {"servers": ["10.0.0.10"], "searches": ["svc.local"], "options": ["ndots:5"]},
		"cgroupPath": "/kubepods/pod1",
		"io.kubernetes.cri.pod-annotations": {"kubernetes.io/ingress-bandwidth": "10M", "other": "text"}}`)
	if diff := cmp.Diff(want, decode(t, read(".ADD"))["runtimeConfig"]); diff != "" {
		t.Errorf("the plugin is told (-want +got):\n%s", diff)
	}
	if got := decode(t, read(".plain"))["runtimeConfig"]; got != nil {
		t.Errorf("a plugin that asks for nothing is told %v", got)
	}
	wantEnv := "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=one;K8S_POD_UID=uid-1 eth0 one " + s.bin + ":" + realPlugins
	if got := read(".env"); got != wantEnv {
		t.Errorf("environment %q, want %q", got, wantEnv)
	}
	mustTeardown(t, s.open(), "one")
	end := decode(t, read(".DEL"))
	if diff := cmp.Diff(want, end["runtimeConfig"]); diff != "" {
		t.Errorf("at the end the plugin is told (-want +got):\n%s", diff)
	}
	if end["prevResult"] == nil {
		t.Error("at the end the plugin is not told what it answered")
	}
}

// The second plugin of a list fails: the first one's work is undone.
func TestAPluginFailsHalfWay(t *testing.T) {
	s := newSite(t)
	s.write("10-net.conflist", list("net", s.bridge("cni1", "10.81.0.0/24")))
	warm(t, s)
	s.plugin("failing", `[ $CNI_COMMAND = ADD ] && { echo '{"code": 7, "msg": "no luck", "details": "today"}'; exit 1; }`)
	s.write("10-net.conflist", list("net", s.bridge("cni1", "10.81.0.0/24"), `{"type": "failing"}`))
	leak.Check(t, leak.Scope{Dirs: []string{s.state}})
	ns := namespaces.NewNet(t)
	_, err := s.open().Setup(t.Context(), request("one", ns))
	if err == nil || !strings.Contains(err.Error(), "no luck; today") || !strings.Contains(err.Error(), "10-net.conflist") {
		t.Errorf("error %v", err)
	}
	if got, want := s.ran(ns), "failing ADD NS\nfailing DEL NS\n"; got != want {
		t.Errorf("plugins ran\n%swant\n%s", got, want)
	}
	if left := s.addressesTaken("net"); len(left) > 0 || s.recorded() > 0 {
		t.Errorf("addresses are left: %v; %d files", left, s.recorded())
	}
}

// What can't be undone is remembered and undone later: by the same berth, or by
// one that follows. Nobody names the sandbox any more then.
func TestWhatIsLeftIsRemovedLater(t *testing.T) {
	for name, later := range map[string]func(*testing.T, *site, *Network) error{
		"by the same berth": func(t *testing.T, _ *site, n *Network) error { return n.Retry(t.Context()) },
		"by the next": func(t *testing.T, s *site, _ *Network) error {
			done, err := s.open().Reclaim(t.Context(), func(id string) bool { return id == "other" })
			if err == nil && done != 1 {
				t.Errorf("%d were reclaimed", done)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.plugin("first", "")
			s.plugin("stuck", "echo broken >&2; exit 3")
			n := s.open()
			s.write("10-net.conflist", list("net", `{"type": "first"}`))
			mustSetup(t, n, request("other", namespaces.NewNet(t)))
			s.write("10-net.conflist", list("net", `{"type": "first"}`, `{"type": "stuck"}`))
			ns := namespaces.NewNet(t)
			_, err := n.Setup(t.Context(), request("one", ns))
			if err == nil || strings.Count(err.Error(), "broken") != 2 {
				t.Errorf("error %v", err)
			}
			if err := n.Retry(t.Context()); err == nil {
				t.Error("what is left is forgotten")
			}
			s.plugin("stuck", "")
			namespaces.EndNet(ns)
			if err := os.Remove(s.log); err != nil {
				t.Fatal(err)
			}
			if err := later(t, s, n); err != nil {
				t.Fatal(err)
			}
			if got, want := s.ran(ns), "stuck DEL none\nfirst DEL none\n"; got != want {
				t.Errorf("plugins ran\n%swant\n%s", got, want)
			}
			if s.recorded() != 2 {
				t.Errorf("%d files are left, want the two of the other sandbox", s.recorded())
			}
			mustTeardown(t, n, "other")
		})
	}
}

// A plugin that says that there is no such sandbox has nothing to do; the others
// of the list do their part.
func TestAPluginThatKnowsNothingOfASandbox(t *testing.T) {
	s := newSite(t)
	s.plugin("first", "")
	s.plugin("forgetful", `[ $CNI_COMMAND = DEL ] && { echo '{"code": 3, "msg": "unknown container"}'; exit 1; }`)
	s.write("10-net.conflist", list("net", `{"type": "first"}`, `{"type": "forgetful"}`))
	n, ns := s.open(), namespaces.NewNet(t)
	mustSetup(t, n, request("one", ns))
	mustTeardown(t, n, "one")
	if got, want := s.ran(ns), "first ADD NS\nforgetful ADD NS\nforgetful DEL NS\nfirst DEL NS\n"; got != want {
		t.Errorf("plugins ran\n%swant\n%s", got, want)
	}
}

// A caller that gives up does not wait for a plugin that hangs, and nothing that
// the plugin started runs on.
func TestAPluginHangs(t *testing.T) {
	s := newSite(t)
	s.plugin("hanging", `[ $CNI_COMMAND = ADD ] && { echo begun >>$log; sleep 1000; echo late >>$log; }`)
	s.write("10-net.conflist", list("net", `{"type": "hanging"}`))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !strings.Contains(s.ran("-"), "begun") {
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
	}()
	ns := namespaces.NewNet(t)
	if _, err := s.open().Setup(ctx, request("one", ns)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got, want := s.ran(ns), "hanging ADD NS\nbegun\nhanging DEL NS\n"; got != want {
		t.Errorf("plugins ran\n%swant\n%s", got, want)
	}
	if s.recorded() > 0 {
		t.Errorf("%d files are left", s.recorded())
	}
}

// setupEnv makes the test program set up a sandbox and nothing else.
const setupEnv = "BERTH_TEST_CNI_SETUP"

func setupAndDie(text string) int {
	f := strings.Split(text, "\n")
	n, err := New(Config{StateDir: f[0], ConfDir: f[1], BinDirs: []string{f[2]}})
	if err == nil {
		_, err = n.Setup(context.Background(), request("one", f[3]))
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	return 0
}

// Berth is killed while a plugin, or what the plugin has started, is at work. The
// next one waits for it, and tears down all of it then.
func TestKilledWhileAPluginWorks(t *testing.T) {
	for name, work := range map[string]string{
		"the plugin works on":           `while [ ! -e $log.go ]; do sleep 0.01; done; echo done >>$log`,
		"what the plugin calls does so": `{ while [ ! -e $log.go ]; do sleep 0.01; done; echo done >>$log; } >/dev/null 2>&1 & echo`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			t.Cleanup(func() { os.WriteFile(s.log+".go", nil, 0o600) }) // so that nothing waits on
			s.plugin("slow", `[ $CNI_COMMAND = ADD ] && { echo begun >>$log; `+work+`; }`)
			s.plugin("next", `[ $CNI_COMMAND = ADD ] && while [ ! -e $log.go ]; do sleep 0.01; done`)
			s.write("10-net.conflist", list("net", `{"type": "slow"}`, `{"type": "next"}`))
			ns := namespaces.NewNet(t)
			berth := exec.Command("/proc/self/exe")
			berth.Env = append(os.Environ(), setupEnv+"="+strings.Join([]string{s.state, s.conf, s.bin, ns}, "\n"))
			berth.Stderr = t.Output()
			if err := berth.Start(); err != nil {
				t.Fatal(err)
			}
			for !strings.Contains(s.ran(ns), "begun") {
				time.Sleep(5 * time.Millisecond)
			}
			if err := berth.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = berth.Wait() // it was killed
			n := s.open()
			reclaimed := make(chan error)
			go func() {
				_, err := n.Reclaim(context.Background(), func(string) bool { return false })
				reclaimed <- err
			}()
			select {
			case err := <-reclaimed:
				t.Fatalf("nobody waited for the plugin: %v; %s", err, s.ran(ns))
			case <-time.After(200 * time.Millisecond): // long enough to see it go wrong
			}
			if err := os.WriteFile(s.log+".go", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := <-reclaimed; err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(s.ran(ns), "next ADD NS\n", "")
			if want := "slow ADD NS\nbegun\ndone\nnext DEL NS\nslow DEL NS\n"; got != want {
				t.Errorf("plugins ran\n%swant\n%s", got, want)
			}
			if s.recorded() > 0 {
				t.Errorf("%d files are left", s.recorded())
			}
		})
	}
}

// A plugin that leaves a process behind for good does not keep its sandbox.
func TestAPluginLeavesAProcess(t *testing.T) {
	s := newSite(t)
	// It ends when the test's folder goes.
	s.plugin("father", `[ $CNI_COMMAND = ADD ] && { while [ -e "$0" ]; do sleep 0.01; done & } >/dev/null 2>&1`)
	s.write("10-net.conflist", list("net", `{"type": "father"}`))
	n := s.open()
	n.records.wait = 50 * time.Millisecond
	mustSetup(t, n, request("one", namespaces.NewNet(t)))
	mustTeardown(t, n, "one")
	if s.recorded() > 0 {
		t.Errorf("%d files are left", s.recorded())
	}
}

// A plugin whose program is being written when it is wanted.
func TestAPluginIsBeingInstalled(t *testing.T) {
	s := newSite(t)
	s.plugin("fresh", "")
	s.write("10-net.conflist", list("net", `{"type": "fresh"}`))
	f, err := os.OpenFile(filepath.Join(s.bin, "fresh"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(2*busyWait, func() { f.Close() }).Stop()
	n := s.open()
	mustSetup(t, n, request("one", namespaces.NewNet(t)))
	mustTeardown(t, n, "one")
}

// A sandbox that has a network gets no second one.
func TestASecondSetupIsRefused(t *testing.T) {
	s := newSite(t)
	s.plugin("first", "")
	s.write("10-net.conflist", list("net", `{"type": "first"}`))
	n, ns := s.open(), namespaces.NewNet(t)
	mustSetup(t, n, request("one", ns))
	if _, err := n.Setup(t.Context(), request("one", ns)); err == nil || !strings.Contains(err.Error(), "has a network already") {
		t.Errorf("error %v", err)
	}
	if _, err := n.Setup(t.Context(), request("../one", ns)); err == nil {
		t.Error("an id that is a path is taken")
	}
	mustTeardown(t, n, "one")
	if got, want := s.ran(ns), "first ADD NS\nfirst DEL NS\n"; got != want {
		t.Errorf("plugins ran\n%swant\n%s", got, want)
	}
}

func TestDamagedRecord(t *testing.T) {
	s := newSite(t)
	s.plugin("first", "")
	s.write("10-net.conflist", list("net", `{"type": "first"}`))
	n := s.open()
	mustSetup(t, n, request("one", namespaces.NewNet(t)))
	file := filepath.Join(s.state, "sandboxes", "one.json")
	if err := os.WriteFile(file, []byte(`{"id": "two"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Teardown(t.Context(), "one"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v", err)
	}
	if err := n.Cleanup(t.Context()); err == nil {
		t.Error("cleanup forgets it")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := n.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.state); !os.IsNotExist(err) {
		t.Errorf("the state is left: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		want   []string // nil: an error
	}{
		"without interfaces":               {`"ips": [{"address": "10.0.0.2/24"}]`, []string{"10.0.0.2"}},
		"IPv4 comes first":                 {`"ips": [{"address": "fd00::2/64"}, {"address": "10.0.0.2/24"}, {"address": "10.0.0.3/24"}]`, []string{"10.0.0.2", "10.0.0.3", "fd00::2"}},
		"the host's side is not the pod's": {`"interfaces": [{"name": "cni0"}, {"name": "eth0", "sandbox": "/x"}], "ips": [{"interface": 0, "address": "10.0.0.1/24"}, {"interface": 1, "address": "10.0.0.2/24"}]`, []string{"10.0.0.2"}},
		"no address":                       {`"interfaces": [{"name": "eth0"}]`, nil},
		"no such interface":                {`"ips": [{"interface": 1, "address": "10.0.0.2/24"}]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.plugin("first", `answer='{"cniVersion": "1.0.0", `+tt.answer+`}'`)
			s.write("10-net.conflist", list("net", `{"type": "first"}`))
			n := s.open()
			res, err := n.Setup(t.Context(), request("one", namespaces.NewNet(t)))
			var got []string
			for _, ip := range res.IPs {
				got = append(got, ip.String())
			}
			if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
				t.Errorf("addresses %v, want %v; %v", got, tt.want, err)
			}
			if err != nil && s.recorded() > 0 {
				t.Error("a set-up that failed is recorded")
			}
			mustTeardown(t, n, "one")
		})
	}
}

func TestBandwidthOfAPod(t *testing.T) {
	for text, want := range map[string]int64{"1k": 1000, "1P": 1e15, "1.5M": 1500000, "999": 0, "2P": 0, "fast": 0, "": 0, "-1M": 0} {
		got, err := limitsOf(map[string]string{"kubernetes.io/egress-bandwidth": text})
		if got.EgressRate != want || (err == nil) != (want > 0) || got.IngressRate != 0 || got.IngressBurst != 0 {
			t.Errorf("%q gives %+v, %v", text, got, err)
		}
	}
}
