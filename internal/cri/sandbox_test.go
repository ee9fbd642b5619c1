package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

func TestSandboxHasItsOwnNamespacesAndFiles(t *testing.T) {
	f := newFixture(t)
	config := sandboxConfig("web")
	config.Linux.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "kernel.shm_rmid_forced": "1"}
	id, err := f.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	var uts unix.Utsname
	sysctls := map[string]string{}
	err = inNamespaces(f.namespaceDir(id), []nsKind{nsNet, nsUTS, nsIPC}, func() error {
		for _, name := range []string{"net/ipv4/ip_unprivileged_port_start", "kernel/shm_rmid_forced"} {
			raw, err := os.ReadFile("/proc/sys/" + name)
			if err != nil {
				return err
			}
			sysctls[name] = strings.TrimSpace(string(raw))
		}
		return unix.Uname(&uts)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := unix.ByteSliceToString(uts.Nodename[:]); got != "web" {
		t.Errorf("host name %q, want web", got)
	}
	if got := fmt.Sprint(sysctls); got != "map[kernel/shm_rmid_forced:1 net/ipv4/ip_unprivileged_port_start:0]" {
		t.Errorf("sysctls %s", got)
	}
	own, err := os.Hostname()
	if err != nil || own == "web" {
		t.Errorf("the host's name is %q (%v): the sandbox changed it", own, err)
	}
	resolv, err := os.ReadFile(f.resolvConfPath(id))
	if want := "search svc.local\nnameserver 10.9.9.9\noptions ndots:5\n"; err != nil || string(resolv) != want {
		t.Errorf("resolv.conf is %q (%v), want %q", resolv, err, want)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(f.shmPath(id), &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Errorf("/dev/shm is no tmpfs: %v", err)
	}
	ports := f.network.pods[id].Ports
	if len(ports) != 1 || ports[0].String() != "127.0.0.1:8080/tcp" {
		t.Errorf("ports %v, want only the one with a host port", ports)
	}
	r, err := f.PodSandboxStatus(t.Context(), id, true)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.GetStatus().GetNetwork(); n.GetIp() != "10.1.2.3" || n.GetAdditionalIps()[0].GetIp() != "fd00::3" {
		t.Errorf("network %v", n)
	}
	if r.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || r.GetStatus().GetAnnotations()["note"] != "kept" {
		t.Errorf("status %v", r.GetStatus())
	}
}

func TestHostNamespacesAreLeftAlone(t *testing.T) {
	f := newFixture(t)
	config := sandboxConfig("host")
	o := config.Linux.SecurityContext.NamespaceOptions
	o.Network, o.Ipc, o.Pid = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE
	id, err := f.RunPodSandbox(t.Context(), config, "berth")
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(f.namespaceDir(id)); err != nil || len(entries) > 0 {
		t.Errorf("namespaces %v (%v), want none", entries, err)
	}
	if len(f.network.pods) > 0 {
		t.Error("the network was set up")
	}
}

func TestUserNamespaceOwnsTheOthers(t *testing.T) {
	f := newFixture(t)
	config := sandboxConfig("user")
	maps := []*runtimeapi.IDMapping{{ContainerId: 0, HostId: 100000, Length: 65536}}
	config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: maps, Gids: maps}
	id, err := f.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []nsKind{nsNet, nsIPC, nsUTS} {
		ns, err := os.Open(f.pinPath(id, k))
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		owner, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_USERNS)
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(owner, &st); err != nil {
			t.Fatal(err)
		}
		unix.Close(owner)
		if st.Ino != statIno(t, f.pinPath(id, nsUser)) {
			t.Errorf("%s namespace is not owned by the sandbox's user namespace", k)
		}
	}
	if got := owner(t, f.resolvConfPath(id)); got != 100000 {
		t.Errorf("resolv.conf belongs to %d, want the sandbox's root, 100000", got)
	}
	if got := owner(t, f.shmPath(id)); got != 100000 {
		t.Errorf("/dev/shm belongs to %d, want the sandbox's root, 100000", got)
	}
}

func statIno(t *testing.T, path string) uint64 {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func owner(t *testing.T, path string) uint32 {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid
}

func TestBadSandboxesAreRefused(t *testing.T) {
	f := newFixture(t)
	for name, alter := range map[string]func(*runtimeapi.PodSandboxConfig){
		"no uid":                         func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Uid = "" },
		"a sysctl of the machine":        func(c *runtimeapi.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"vm.swappiness": "1"} },
		"a sysctl that leaves /proc/sys": func(c *runtimeapi.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"net/../vm/swappiness": "1"} },
		"a sysctl of the host's network": func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.Sysctls = map[string]string{"net.core.somaxconn": "1"}
			c.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := sandboxConfig("bad")
			alter(c)
			if _, err := f.RunPodSandbox(t.Context(), c, ""); status.Code(err) != codes.InvalidArgument {
				t.Errorf("error %v, want InvalidArgument", err)
			}
		})
	}
	if _, err := f.RunPodSandbox(t.Context(), sandboxConfig("x"), "kata"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("unknown handler: %v", err)
	}
}

func TestSameSandboxTwiceIsRefused(t *testing.T) {
	f := newFixture(t)
	id, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), ""); status.Code(err) != codes.AlreadyExists {
		t.Errorf("error %v, want AlreadyExists", err)
	}
	if err := f.RemovePodSandbox(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), ""); err != nil {
		t.Errorf("after removal: %v", err)
	}
}

// Each step of making a sandbox is made to fail after it took effect.
func TestFailedSandboxLeavesNothing(t *testing.T) {
	f := newFixture(t)
	config := sandboxConfig("web")
	config.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	config.Linux.Sysctls = map[string]string{"net.core.somaxconn": "100"}
	for _, st := range f.sandboxSteps(newSandbox(store.Sandbox{})) {
		t.Run(st.name, func(t *testing.T) {
			f.fault = func(name string) error {
				if name == st.name {
					return errors.New("injected")
				}
				return nil
			}
			defer func() { f.fault = nil }()
			if _, err := f.RunPodSandbox(t.Context(), config, ""); err == nil || !strings.Contains(err.Error(), "injected") {
				t.Errorf("error %v", err)
			}
			f.wantNothing(t)
		})
	}
}

func TestCancelledSandboxLeavesNothing(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.fault = func(name string) error {
		if name == "connect the sandbox" {
			cancel()
		}
		return nil
	}
	defer func() { f.fault = nil }()
	if _, err := f.RunPodSandbox(ctx, sandboxConfig("web"), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want cancelled", err)
	}
	f.wantNothing(t)
}

func TestStopAndRemoveMayBeRepeated(t *testing.T) {
	f := newFixture(t)
	id, c := f.runOne(t)
	for range 2 {
		if err := f.StopPodSandbox(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if pinned(f.pinPath(id, nsNet)) || len(f.network.pods) > 0 {
		t.Error("a stopped sandbox holds its network")
	}
	if st := f.statusOf(t, c); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 137 {
		t.Errorf("container is %v", st)
	}
	if _, err := f.CreateContainer(t.Context(), id, containerConfig("late"), nil); err == nil {
		t.Error("a stopped sandbox takes containers")
	}
	for range 2 {
		if err := f.RemovePodSandbox(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.StopPodSandbox(t.Context(), "nobody"); err != nil {
		t.Error(err)
	}
	if _, err := f.PodSandboxStatus(t.Context(), id, false); status.Code(err) != codes.NotFound {
		t.Errorf("status of a removed sandbox: %v", err)
	}
	f.wantNothing(t)
}

func TestHundredSandboxesAtOnce(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			id, err := f.RunPodSandbox(t.Context(), sandboxConfig(fmt.Sprint("pod-", i)), "")
			if err != nil {
				t.Error(err)
				return
			}
			c, err := f.CreateContainer(t.Context(), id, containerConfig("app"), nil)
			if err == nil {
				err = f.StartContainer(t.Context(), c)
			}
			if err == nil && i%2 == 0 {
				err = f.RemovePodSandbox(t.Context(), id)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := f.ListPodSandbox(t.Context(), &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}})
	if err != nil || len(list) != 50 {
		t.Errorf("%d sandboxes (%v), want 50", len(list), err)
	}
}

func TestListFilters(t *testing.T) {
	f := newFixture(t)
	var ids []string
	for _, name := range []string{"a", "b"} {
		id, err := f.RunPodSandbox(t.Context(), sandboxConfig(name), "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := f.StopPodSandbox(t.Context(), ids[1]); err != nil {
		t.Fatal(err)
	}
	notReady := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}
	for name, tt := range map[string]struct {
		filter *runtimeapi.PodSandboxFilter
		want   []string
	}{
		"none":         {nil, ids},
		"by state":     {&runtimeapi.PodSandboxFilter{State: notReady}, ids[1:]},
		"by label":     {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"app": "a"}}, ids[:1]},
		"by short id":  {&runtimeapi.PodSandboxFilter{Id: ids[0][:12]}, ids[:1]},
		"all together": {&runtimeapi.PodSandboxFilter{Id: ids[0], State: notReady}, nil},
	} {
		list, err := f.ListPodSandbox(t.Context(), tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, sb := range list {
			got = append(got, sb.GetId())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestPauseEndsTheSandbox(t *testing.T) {
	f := newFixture(t)
	config := sandboxConfig("shared")
	config.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	id, err := f.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	if !pinned(f.pinPath(id, nsPID)) {
		t.Error("the pid namespace is not held")
	}
	spec, err := readSpec(f.pauseDir(id))
	if err != nil || len(spec.Process.Capabilities.Bounding) > 0 || !spec.Process.NoNewPrivileges || !spec.Root.Readonly {
		t.Errorf("pause has too many rights: %+v (%v)", spec.Process, err)
	}
	events := subscribe(t, f)
	f.shim.exit(pauseID(id), killed())
	if e := <-events; e.GetContainerId() != id || e.GetPodSandboxStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("event %v", e)
	}
	if _, err := os.Stat(filepath.Join(f.pauseDir(id), specFile)); err != nil {
		t.Error(err)
	}
}

// The process itself keeps its namespaces, whichever thread the work gets.
func TestThrowawayThreadsLeaveTheProcessAlone(t *testing.T) {
	needsRoot(t)
	before, err := os.Readlink("/proc/self/ns/uts")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() {
			err := onThrowawayThread(func() error {
				runtime.Gosched()
				return unix.Unshare(unix.CLONE_NEWUTS)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if after, err := os.Readlink("/proc/self/ns/uts"); err != nil || after != before {
		t.Errorf("namespace was %s, is %s (%v)", before, after, err)
	}
}
