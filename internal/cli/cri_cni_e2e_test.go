package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/testutil/namespaces"
)

// ownNetworkEnv marks the copy of the test program that has a network of its own.
const ownNetworkEnv = "BERTH_TEST_OWN_NETWORK"

// inOwnNetwork runs the test once more, alone and in a network namespace of its
// own, in which it says true: what plugins make and leave must not reach the
// machine.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownNetworkEnv) != "" {
		if err := namespaces.LoopbackUp(); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), ownNetworkEnv+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
	again.Stdout, again.Stderr = t.Output(), t.Output()
	if err := again.Run(); err != nil {
		t.Errorf("in a network of its own: %v", err)
	}
	return false
}

// A sandbox that plugins connected is cleaned up with them, whatever has become of
// the flags and the folder of configurations.
func TestCRIWithPlugins(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	n := newNode(t)
	conf, ipam := filepath.Join(t.TempDir(), "net.d"), t.TempDir()
	if err := os.Mkdir(conf, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "cnie2e", "isGateway": true,
		"ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.88.7.0/24"}}`, ipam)
	if err := os.WriteFile(filepath.Join(conf, "10-net.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := n.berth("cri", "--network", "both"); code != 2 || !strings.Contains(out, "auto, cni or bridge") {
		t.Errorf("--network both ends with %d: %s", code, out)
	}
	served := n.start("cri", "--cni-conf-dir", conf, "--cni-bin-dir", "/usr/lib/cni")
	served.await("serving the CRI")
	client := criClient(t, n.home().CRISocket())
	sandbox, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"}, LogDirectory: t.TempDir(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := client.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.GetPodSandboxId()})
	if ip := st.GetStatus().GetNetwork().GetIp(); err != nil || !strings.HasPrefix(ip, "10.88.7.") {
		t.Errorf("address %q, %v", ip, err)
	}
	served.signal(syscall.SIGKILL)
	served.wait()
	if err := os.RemoveAll(conf); err != nil {
		t.Fatal(err)
	}
	n.must("cleanup", "-y")
	if left, err := filepath.Glob(ipam + "/net/10.*"); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
