package cni

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/testutil/leak"
)

func get(t *testing.T, address string) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var err error
	for range 50 { // the server needs a moment
		var res *http.Response
		if res, err = client.Get("http://" + address + "/healthz"); err == nil {
			res.Body.Close()
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("no answer: %v", err)
}

// Real sandboxes with real plugins: addresses of both families, the ways between
// host and pods, loopback and a host port; all of it also after a restart and with
// an empty folder; and nothing is left.
func TestRealSandboxes(t *testing.T) {
	r, s := real(t)
	conf := list("net", s.bridge("cnireal", "10.84.0.0/24", "fd00:84::/64"), `{"type": "portmap", "capabilities": {"portMappings": true}}`)
	scope := leak.Scope{Dirs: []string{r.node.Path("run"), r.config.StateDir, s.ipam}, Cgroup: r.node.Cgroup}
	cycle := func() {
		s.write("10-net.conflist", conf)
		if c, info := r.ready(t); !c.GetStatus() || info["lastCNILoadStatus"] != "OK" || !strings.Contains(info["cniconfig"], "cnireal") || info["info"] == "" {
			t.Errorf("condition %v, %v", c, info)
		}
		one, config := r.run(t, "one", &runtimeapi.PortMapping{HostPort: 18084, ContainerPort: 8080})
		two, twoConfig := r.run(t, "two")
		ips := r.ips(t, one)
		if len(ips) != 2 || !strings.HasPrefix(ips[0], "10.84.0.") || !strings.HasPrefix(ips[1], "fd00:84::") {
			t.Fatalf("addresses %v", ips)
		}
		server := r.start(t, one, config, "serve")
		client := r.start(t, two, twoConfig, "sleep", "1000")

		check := func() {
			t.Helper()
			get(t, net.JoinHostPort(ips[0], "8080"))
			get(t, "10.84.0.1:18084") // the host's own address
			r.exec(t, server, "http-get", "http://127.0.0.1:8080/healthz")
			r.exec(t, client, "http-get", "http://"+net.JoinHostPort(ips[0], "8080")+"/healthz")
			r.exec(t, client, "http-get", "http://"+net.JoinHostPort(ips[1], "8080")+"/healthz")
			r.exec(t, client, "http-get", "http://10.84.0.1:18084/healthz")
		}
		check()
		s.empty()
		r.restart(t)
		check()
		if got := r.ips(t, one); strings.Join(got, " ") != strings.Join(ips, " ") {
			t.Errorf("addresses %v, %v before the restart", got, ips)
		}
		for _, id := range []string{one, two} {
			if err := r.StopPodSandbox(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if err := r.RemovePodSandbox(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if left := s.addressesTaken("net"); len(left) > 0 || len(r.files(t)) > 0 {
			t.Errorf("left are %v, %v", left, r.files(t))
		}
	}
	cycle() // what is made once is made now
	before := leak.Take(t, scope)
	cycle()
	before.NoMore(t, scope)
}

// A configuration comes while pods of the bridge run; each is taken down by who
// made it, after a restart, too.
func TestRealChangeFromBridgeToCNI(t *testing.T) {
	r, s := real(t)
	if c, info := r.ready(t); !c.GetStatus() || !strings.HasPrefix(info["network"], "bridge") {
		t.Errorf("condition %v, %v", c, info)
	}
	old, config := r.run(t, "old")
	server := r.start(t, old, config, "serve")
	s.write("10-net.conflist", list("net", s.bridge("cnireal", "10.84.0.0/24")))
	now, _ := r.run(t, "now")
	r.restart(t)
	oldIP, nowIP := r.ips(t, old)[0], r.ips(t, now)[0]
	if !strings.HasPrefix(oldIP, "10.85.0.") || !strings.HasPrefix(nowIP, "10.84.0.") {
		t.Errorf("addresses %s and %s", oldIP, nowIP)
	}
	get(t, oldIP+":8080")
	r.exec(t, server, "http-get", "http://127.0.0.1:8080/healthz")
	for _, id := range []string{now, old} {
		if err := r.RemovePodSandbox(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if left := s.addressesTaken("net"); len(left) > 0 || len(r.files(t)) > 0 {
		t.Errorf("left are %v, %v", left, r.files(t))
	}
}

// Configurations and plugins that don't work: the runtime says so, no sandbox runs,
// nothing is left, and it works when they do.
func TestRealNetworkThatDoesNotWork(t *testing.T) {
	r, s := real(t)
	s.write("10-net.conflist", list("net", s.bridge("cnireal", "10.84.0.0/24")))
	r.run(t, "warm")
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "test", Uid: t.Name()}, LogDirectory: t.TempDir(),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: r.node.Cgroup},
	}
	s.bin = r.config.BinDirs[0]
	s.plugin("failing", `[ $CNI_COMMAND = ADD ] && { echo '{"code": 7, "msg": "no luck"}'; exit 1; }`)
	for name, tt := range map[string]struct {
		conf, err string
		ready     bool
	}{
		"broken":            {`{`, "10-net.conflist", false},
		"plugin missing":    {list("net", s.bridge("cnireal", "10.84.0.0/24"), `{"type": "nowhere"}`), `"nowhere"`, false},
		"plugin that fails": {list("net", s.bridge("cnireal", "10.84.0.0/24"), `{"type": "failing"}`), "no luck", true},
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t, leak.Scope{Dirs: []string{r.node.Path("run"), r.config.StateDir, s.ipam}, Cgroup: r.node.Cgroup})
			s.write("10-net.conflist", tt.conf)
			if c, _ := r.ready(t); c.GetStatus() != tt.ready || !tt.ready && (c.GetReason() != "NetworkPluginNotReady" || !strings.Contains(c.GetMessage(), tt.err)) {
				t.Errorf("condition %v", c)
			}
			if _, err := r.RunPodSandbox(t.Context(), config, ""); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
	s.write("10-net.conflist", list("net", s.bridge("cnireal", "10.84.0.0/24")))
	id, err := r.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.RemovePodSandbox(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// A plugin fails at the end. The sandbox stays, to be stopped again, and goes when
// the plugin works; its namespace may be gone by then.
func TestRealStopIsTriedAgain(t *testing.T) {
	r, s := real(t)
	s.bin = r.config.BinDirs[0]
	s.plugin("stubborn", `[ $CNI_COMMAND = DEL ] && { echo '{"code": 11, "msg": "later"}'; exit 1; }`)
	s.write("10-net.conflist", list("net", s.bridge("cnireal", "10.84.0.0/24"), `{"type": "stubborn"}`))
	id, _ := r.run(t, "web")
	if err := r.StopPodSandbox(t.Context(), id); err == nil || !strings.Contains(err.Error(), "later") {
		t.Errorf("error %v", err)
	}
	r.restart(t)
	if err := r.RemovePodSandbox(t.Context(), id); err == nil {
		t.Error("a sandbox goes whose network is left")
	}
	s.plugin("stubborn", "")
	if err := r.RemovePodSandbox(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if left := s.addressesTaken("net"); len(left) > 0 || len(r.files(t)) > 0 {
		t.Errorf("left are %v, %v", left, r.files(t))
	}
}

// The ranges that a kubelet tells are the bridge's.
func TestRealPodCIDR(t *testing.T) {
	r, _ := real(t)
	update := func(cidr string) error {
		return r.UpdateRuntimeConfig(context.Background(), &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}})
	}
	if err := update("10.87.0.0/24"); err != nil {
		t.Fatal(err)
	}
	id, _ := r.run(t, "web")
	if ip, err := netip.ParseAddr(r.ips(t, id)[0]); err != nil || !netip.MustParsePrefix("10.87.0.0/24").Contains(ip) {
		t.Errorf("address %v, %v", ip, err)
	}
	if err := r.RemovePodSandbox(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, cidr := range []string{"10.87.0.0", "fd00::/64"} {
		if err := update(cidr); err == nil {
			t.Errorf("%s is taken", cidr)
		}
	}
	if err := update("10.85.0.0/24"); err != nil { // as the other tests have it
		t.Fatal(err)
	}
}
