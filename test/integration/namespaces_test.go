package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/agent"
)

// A container with Bidirectional propagation mounts for the machine and for its
// neighbour, and only where it may.
func TestMountsOfAContainerReachTheMachineIfAskedTo(t *testing.T) {
	n := newNode(t)
	host := t.TempDir()
	mountTmpfs(t, host)
	shareMount(t, host)
	p := n.run(t, onePod("bidirectional", `
args: [serve]
securityContext: {privileged: true}
volumeMounts:
- {name: h, mountPath: /both, mountPropagation: Bidirectional}
- {name: h, mountPath: /none}`, "volumes: [{name: h, hostPath: {path: "+host+"}}]")+indent(2, `
- name: neighbour
  image: demo
  args: [serve, --port, "8081"]
  volumeMounts: [{name: h, mountPath: /slave, mountPropagation: HostToContainer}]`)+"\n")
	p.ready(t)
	for _, dir := range []string{"seen", "hidden"} {
		if err := os.Mkdir(filepath.Join(host, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.prints(t, "app", "", "mount", "tmpfs", "/both/seen")
	t.Cleanup(func() { // as with the kubelet, what was mounted for the machine is its own
		if err := unix.Unmount(filepath.Join(host, "seen"), 0); err != nil {
			t.Errorf("the mount did not outlive its container: %v", err)
		}
	})
	p.prints(t, "app", "", "mount", "tmpfs", "/none/hidden")
	for _, dir := range []string{"seen", "hidden"} {
		p.prints(t, "app", "", "write", map[string]string{"seen": "/both/seen/x", "hidden": "/none/hidden/x"}[dir], "text")
		_, err := os.Stat(filepath.Join(host, dir, "x"))
		code, _ := p.exec(t, "neighbour", "test", "-e", "/slave/"+dir+"/x")
		if shown := dir == "seen"; (err == nil) != shown || (code == 0) != shown {
			t.Errorf("what was mounted on %s: on the machine %v, in the neighbour %d; want shown: %t", dir, err, code, shown)
		}
	}
	p.stop(t)
}

// What a container mounts in a volume of the pod goes with the volume.
func TestMountsInAVolumeOfThePodGoWithIt(t *testing.T) {
	var root string
	n := newNode(t, func(c *agent.Config) {
		mountTmpfs(t, c.Root)
		shareMount(t, c.Root)
		root = filepath.Join(c.Root, "root") // cleaning up removes it
		if err := os.Mkdir(root, 0o711); err != nil {
			t.Fatal(err)
		}
		c.Root = root
	})
	p := n.run(t, onePod("mounts-in-volume", `
args: [serve]
securityContext: {privileged: true}
volumeMounts: [{name: e, mountPath: /e, mountPropagation: Bidirectional}]`, "volumes: [{name: e, emptyDir: {}}]"))
	p.prints(t, "app", "", "mkdir", "/e/in")
	p.prints(t, "app", "", "mount", "tmpfs", "/e/in")
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mounts), string(p.UID)+"/volumes/emptyDir/e/in ") {
		t.Error("the mount did not reach the machine")
	}
	p.stop(t)
	if mounts, err = os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), string(p.UID)) {
		t.Errorf("a mount of the pod is left (%v):\n%s", err, mounts)
	}
}

// A mount that could not propagate is refused, not silently left alone.
func TestMountThatCannotPropagateIsRefused(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, onePod("private-mount", `
args: [serve]
securityContext: {privileged: true}
volumeMounts: [{name: e, mountPath: /e, mountPropagation: Bidirectional}]`, "volumes: [{name: e, emptyDir: {}}]"))
	if message := p.reason(t, "app", "CreateContainerError"); !strings.Contains(message, "is not a shared mount") {
		t.Errorf("the message is %q", message)
	}
	p.stop(t)
}

// A pod with hostPID sees the machine's processes, and takes none of its own
// with it: each is ended, although no namespace ends them.
func TestHostPIDSeesTheMachinesProcesses(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	own := fmt.Sprintf("/proc/%d", os.Getpid())
	comm, err := os.ReadFile(own + "/comm")
	if err != nil {
		t.Fatal(err)
	}
	p := n.run(t, onePod("host-pid", "args: [spawn, \"2\", --each, \"2\"]", "hostPID: true"))
	p.prints(t, "app", string(comm), "cat", own+"/comm")
	p.stop(t)
	out := inside(t, "own-pid", "args: [cat, /proc/1/cmdline]")
	if !strings.Contains(out, "berth-demo") {
		t.Errorf("without hostPID, the first process is %q", out)
	}
}

func TestHostIPCSharesMemoryWithTheMachine(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	f, err := os.CreateTemp("/dev/shm", "berth-it-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	ns, err := os.Readlink("/proc/self/ns/ipc")
	if err != nil {
		t.Fatal(err)
	}
	for name, shares := range map[string]bool{"hostIPC: true": true, "hostIPC: false": false} {
		out := inside(t, "ipc-"+fmt.Sprint(shares), "args: [ls, -l, /proc/self/ns, /dev/shm]", name)
		if strings.Contains(out, ns) != shares || strings.Contains(out, filepath.Base(f.Name())) != shares {
			t.Errorf("%s: the machine's are %s and %s, the pod sees\n%s", name, ns, f.Name(), out)
		}
	}
}
