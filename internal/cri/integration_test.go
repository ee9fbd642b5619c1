package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/shim"
)

func goArch() string { return runtime.GOARCH }

type (
	podConfig = *runtimeapi.PodSandboxConfig
	ctrConfig = *runtimeapi.ContainerConfig
)

func TestRealDefaults(t *testing.T) {
	p := real(t).pod(t)
	id := p.start(func(c ctrConfig) {
		c.Envs = []*runtimeapi.KeyValue{{Key: "BOTH", Value: []byte("pod")}, {Key: "MULTI", Value: []byte("a\nb")}}
		c.Linux.SecurityContext.MaskedPaths = []string{"/proc/version"}
		c.Linux.SecurityContext.ReadonlyPaths = []string{"/proc/sys"}
	}, "report")
	st := p.await(id)
	v := p.parse(p.log(id))
	if st.GetExitCode() != 0 || st.GetReason() != "Completed" {
		t.Errorf("status %v", st)
	}
	if v.Cwd != "/srv/here" || v.Hostname != "inside" || v.PID != 1 {
		t.Errorf("cwd %q, host name %q, pid %d", v.Cwd, v.Hostname, v.PID)
	}
	if v.env("FROM_IMAGE") != "yes" || v.env("BOTH") != "pod" || v.env("MULTI") != "a\nb" || v.env("HOSTNAME") != "inside" || v.env("PATH") == "" {
		t.Errorf("environment %q", v.Env)
	}
	// The image's user, its group, and the groups it is a member of.
	if v.Status["Uid"] != "1000\t1000\t1000\t1000" || v.Status["Gid"] != "1001\t1001\t1001\t1001" || v.Status["Groups"] != "1001 1500" {
		t.Errorf("uid %q gid %q groups %q", v.Status["Uid"], v.Status["Gid"], v.Status["Groups"])
	}
	if u := st.GetUser().GetLinux(); u.GetUid() != 1000 || u.GetGid() != 1001 || !slices.Equal(u.GetSupplementalGroups(), []int64{1001, 1500}) {
		t.Errorf("reported user %v", u)
	}
	for _, ns := range []string{"net", "ipc", "uts", "pid", "mnt"} {
		host, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil || v.Namespaces[ns] == host {
			t.Errorf("%s namespace is the host's: %s (%v)", ns, host, err)
		}
	}
	if v.Status["Seccomp"] != "0" || v.Status["NoNewPrivs"] != "0" {
		t.Errorf("seccomp %s, no_new_privs %s without being asked", v.Status["Seccomp"], v.Status["NoNewPrivs"])
	}
	if _, masked := v.Mounts["/proc/version"]; !masked {
		t.Error("/proc/version is not masked")
	}
	if !strings.HasPrefix(v.Mounts["/proc/sys"], "ro") {
		t.Errorf("/proc/sys is %q", v.Mounts["/proc/sys"])
	}
	if !strings.HasPrefix(v.Mounts["/sys"], "ro") || strings.HasPrefix(v.Mounts["/"], "ro") {
		t.Errorf("mounts / %q /sys %q", v.Mounts["/"], v.Mounts["/sys"])
	}
	for _, m := range []string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/dev/shm"} {
		if _, ok := v.Mounts[m]; !ok {
			t.Errorf("%s is not mounted", m)
		}
	}
	if len(v.Addresses) < 2 || !slices.ContainsFunc(v.Addresses, func(a string) bool { return strings.HasPrefix(a, p.cidr[:len("10.213.")]) }) {
		t.Errorf("addresses %v", v.Addresses)
	}
	cgroup := p.node.Cgroup + "/" + id
	if p.host.Unified {
		cgroup = "0::/\n" // the root of a namespace of its own
	}
	if !strings.Contains(v.Cgroup, cgroup) {
		t.Errorf("cgroup %q, want %q", v.Cgroup, cgroup)
	}
}

func TestRealSecurity(t *testing.T) {
	const (
		chown, netAdmin = 1 << 0, 1 << 12
	)
	has := func(set string, bit uint64) bool {
		var n uint64
		fmt.Sscanf(set, "%x", &n)
		return n&bit != 0
	}
	for name, tt := range map[string]struct {
		alter func(*runtimeapi.LinuxContainerSecurityContext)
		check func(v view) bool
	}{
		"run as user and group": {
			func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.RunAsUser, s.RunAsGroup = &runtimeapi.Int64Value{Value: 4242}, &runtimeapi.Int64Value{Value: 4343}
			},
			func(v view) bool {
				return v.Status["Uid"] == "4242\t4242\t4242\t4242" && v.Status["Gid"] == "4343\t4343\t4343\t4343"
			}},
		"run as user by name, with its groups": {
			func(s *runtimeapi.LinuxContainerSecurityContext) { s.RunAsUsername = "other" },
			func(v view) bool {
				return strings.HasPrefix(v.Status["Uid"], "2000\t") && v.Status["Groups"] == "1500 2000"
			}},
		"supplemental groups are merged": {
			func(s *runtimeapi.LinuxContainerSecurityContext) { s.SupplementalGroups = []int64{77} },
			func(v view) bool { return v.Status["Groups"] == "77 1001 1500" }},
		"supplemental groups alone": {
			func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.SupplementalGroups = []int64{77}
				s.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
			},
			func(v view) bool { return v.Status["Groups"] == "77 1001" }},
		"no new privileges": {
			func(s *runtimeapi.LinuxContainerSecurityContext) { s.NoNewPrivs = true },
			func(v view) bool { return v.Status["NoNewPrivs"] == "1" }},
		"default capabilities": {
			func(s *runtimeapi.LinuxContainerSecurityContext) { s.RunAsUser = &runtimeapi.Int64Value{} },
			func(v view) bool {
				return has(v.Status["CapEff"], chown) && !has(v.Status["CapEff"], netAdmin) && v.Status["CapAmb"] == "0000000000000000"
			}},
		"added and dropped capabilities": {
			func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.RunAsUser = &runtimeapi.Int64Value{}
				s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"CHOWN"}}
			},
			func(v view) bool { return !has(v.Status["CapBnd"], chown) && has(v.Status["CapEff"], netAdmin) }},
		"all capabilities dropped": {
			func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.RunAsUser = &runtimeapi.Int64Value{}
				s.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}}
			},
			func(v view) bool {
				return v.Status["CapBnd"] == "0000000000000000" && v.Status["CapEff"] == "0000000000000000"
			}},
		"ambient capabilities reach a plain user": {
			func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.Capabilities = &runtimeapi.Capability{AddAmbientCapabilities: []string{"NET_ADMIN"}}
			},
			func(v view) bool { return has(v.Status["CapAmb"], netAdmin) && has(v.Status["CapEff"], netAdmin) }},
		"read-only root": {
			func(s *runtimeapi.LinuxContainerSecurityContext) { s.ReadonlyRootfs = true },
			func(v view) bool { return strings.HasPrefix(v.Mounts["/"], "ro") }},
		"default seccomp": {
			func(s *runtimeapi.LinuxContainerSecurityContext) { s.Seccomp = &runtimeapi.SecurityProfile{} },
			func(v view) bool { return v.Status["Seccomp"] == "2" }},
		"unconfined seccomp": {
			func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
			},
			func(v view) bool { return v.Status["Seccomp"] == "0" }},
	} {
		t.Run(name, func(t *testing.T) {
			v := real(t).pod(t).report(func(c ctrConfig) { tt.alter(c.Linux.SecurityContext) })
			if !tt.check(v) {
				t.Errorf("status %q, / is %q", v.Status, v.Mounts["/"])
			}
		})
	}
}

func TestRealSeccompForbids(t *testing.T) {
	p := real(t).pod(t)
	profile := filepath.Join(t.TempDir(), "no-mkdir.json")
	if err := os.WriteFile(profile, []byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	root := &runtimeapi.Int64Value{}
	try := func(what string, seccomp *runtimeapi.SecurityProfile) string {
		id := p.start(func(c ctrConfig) {
			c.Linux.SecurityContext.RunAsUser, c.Linux.SecurityContext.Seccomp = root, seccomp
		}, "try", what)
		p.await(id)
		return strings.TrimSpace(p.log(id))
	}
	if got := try("keyctl", &runtimeapi.SecurityProfile{}); got != "keyctl: operation not permitted" {
		t.Errorf("default profile: %q", got)
	}
	if got := try("keyctl", nil); got != "keyctl: invalid argument" {
		t.Errorf("no profile: %q", got)
	}
	local := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: profile}
	if got := try("mkdir", local); got != "mkdir: operation not permitted" {
		t.Errorf("own profile: %q", got)
	}
	if got := try("mkdir", nil); got != "mkdir: <nil>" {
		t.Errorf("no profile: %q", got)
	}
}

func TestRealPrivileged(t *testing.T) {
	p := real(t).pod(t, func(c podConfig) { c.Linux.SecurityContext.Privileged = true })
	v := p.report(func(c ctrConfig) {
		s := c.Linux.SecurityContext
		s.Privileged, s.RunAsUser = true, &runtimeapi.Int64Value{}
		s.MaskedPaths, s.Seccomp = []string{"/proc/version"}, &runtimeapi.SecurityProfile{}
	})
	if _, masked := v.Mounts["/proc/version"]; masked || v.Status["Seccomp"] != "0" {
		t.Errorf("masked %v, seccomp %s", masked, v.Status["Seccomp"])
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil || !strings.Contains(string(own), "CapEff:\t"+v.Status["CapEff"]) {
		t.Errorf("capabilities %s are not the runtime's", v.Status["CapEff"])
	}
	if !slices.Contains(v.Devices, "kmsg") {
		t.Errorf("devices %v are not the host's", v.Devices)
	}
	if strings.HasPrefix(v.Mounts["/sys"], "ro") {
		t.Errorf("/sys is %q", v.Mounts["/sys"])
	}
	plain := real(t).pod(t, func(c podConfig) { c.Metadata.Attempt = 1 })
	_, err = plain.CreateContainer(t.Context(), plain.id, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "x"}, Image: &runtimeapi.ImageSpec{Image: insideImage},
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			Privileged: true, NamespaceOptions: plain.config.Linux.SecurityContext.NamespaceOptions,
		}},
	}, nil)
	if err == nil {
		t.Error("a privileged container in a sandbox that is not")
	}
}

func TestRealMounts(t *testing.T) {
	p := real(t).pod(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "made", "for", "it")
	id := p.start(func(c ctrConfig) {
		c.Mounts = []*runtimeapi.Mount{
			{ContainerPath: "/rw", HostPath: dir},
			{ContainerPath: "/ro", HostPath: dir, Readonly: true},
			{ContainerPath: "/rro", HostPath: dir, Readonly: true, RecursiveReadOnly: true},
			{ContainerPath: "/missing", HostPath: missing},
			{ContainerPath: "/rw/deep", HostPath: missing},
			{ContainerPath: "/image", Image: &runtimeapi.ImageSpec{Image: insideImage}, Readonly: true},
			{ContainerPath: "/sub", Image: &runtimeapi.ImageSpec{Image: insideImage}, Readonly: true, ImageSubPath: "data"},
		}
	}, "report-and-sleep")
	p.exec(id, "write", "/rw/file", "hello")
	if raw, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(raw) != "hello" {
		t.Errorf("%q, %v", raw, err)
	}
	for _, path := range []string{"/ro/x", "/rro/x", "/image/x", "/sub/x"} {
		_, errOut, err := p.ExecSync(t.Context(), id, []string{"/inside", "write", path, "x"}, 0)
		if err == nil || !strings.Contains(string(errOut), "read-only") {
			t.Errorf("%s can be written: %v %s", path, err, errOut)
		}
	}
	if got := p.exec(id, "cat-file", "/sub/model") + p.exec(id, "cat-file", "/image/data/model"); got != "weightsweights" {
		t.Errorf("image volume has %q", got)
	}
	st, err := p.ContainerStatus(t.Context(), id, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range st.GetStatus().GetMounts() {
		if want := st.GetStatus().GetImageId(); m.GetImage() != nil && m.GetImage().GetImageRef() != want {
			t.Errorf("the image at %s is said to be %q, want %q", m.GetContainerPath(), m.GetImage().GetImageRef(), want)
		}
	}
	if _, err := os.Stat(missing); err != nil {
		t.Error("a missing path was not made")
	}
}

// The image's volumes can be written though its root can't.
func TestRealDeclaredVolumes(t *testing.T) {
	p := real(t).pod(t)
	for _, readOnly := range []bool{true, false} {
		id := p.start(func(c ctrConfig) {
			c.Linux.SecurityContext.ReadonlyRootfs, c.Linux.SecurityContext.RunAsUser = readOnly, &runtimeapi.Int64Value{}
		}, "sleep")
		for _, path := range []string{"/data/written", "/new/volume/written"} {
			if !readOnly {
				p.exec(id, "write", "/new", "") // there are no volumes here, and no such folder
				break
			}
			p.exec(id, "write", path, "x")
			if got := p.exec(id, "cat-file", path); got != "x" {
				t.Errorf("%s has %q", path, got)
			}
		}
		if got := p.exec(id, "cat-file", "/data/model"); got != "weights" {
			t.Errorf("/data/model has %q", got)
		}
		if _, _, err := p.ExecSync(t.Context(), id, []string{"/inside", "write", "/etc/written", "x"}, 0); (err != nil) != readOnly {
			t.Errorf("read-only %v: writing to the root: %v", readOnly, err)
		}
	}
}

func TestRealPropagationNeedsSharedMount(t *testing.T) {
	p := real(t).pod(t)
	_, err := p.CreateContainer(t.Context(), p.id, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "x"}, Image: &runtimeapi.ImageSpec{Image: insideImage},
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/m", HostPath: t.TempDir(), Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}},
		Linux:  &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: p.config.Linux.SecurityContext.NamespaceOptions}},
	}, nil)
	if err == nil || !strings.Contains(err.Error(), "not a shared mount") {
		t.Errorf("error %v", err)
	}
}

func TestRealExitCodes(t *testing.T) {
	p := real(t).pod(t)
	if st := p.await(p.start(nil, "exit", "3")); st.GetExitCode() != 3 || st.GetReason() != "Error" {
		t.Errorf("exit 3: %v", st)
	}
	id := p.start(nil, "on-signal")
	p.awaitLog(id, "ready")
	if err := p.StopContainer(t.Context(), id, 30); err != nil {
		t.Fatal(err)
	}
	if st := p.status(id); st.GetExitCode() != 15 {
		t.Errorf("stopped: %v", st)
	}
	id = p.start(func(c ctrConfig) { c.StopSignal = runtimeapi.Signal_SIGNAL_SIGUSR1 }, "on-signal")
	p.awaitLog(id, "ready")
	if err := p.StopContainer(t.Context(), id, 30); err != nil {
		t.Fatal(err)
	}
	if st := p.status(id); st.GetExitCode() != 10 || st.GetStopSignal() != runtimeapi.Signal_SIGNAL_SIGUSR1 {
		t.Errorf("stopped by SIGUSR1: %v", st)
	}
	id = p.start(nil, "ignore")
	p.awaitLog(id, "ignoring")
	began := time.Now()
	if err := p.StopContainer(t.Context(), id, 1); err != nil {
		t.Fatal(err)
	}
	if st := p.status(id); st.GetExitCode() != 137 || time.Since(began) < time.Second {
		t.Errorf("killed: %v after %s", st, time.Since(began))
	}
}

func TestRealStartErrors(t *testing.T) {
	p := real(t).pod(t)
	for name, tt := range map[string]struct{ command, reason, text string }{
		"no such command": {"/nowhere", shim.CommandNotFound, "/nowhere"},
		"not in the path": {"nowhere", shim.CommandNotFound, "nowhere"},
		"not executable":  {"/not-executable", shim.PermissionDenied, "/not-executable"},
	} {
		t.Run(name, func(t *testing.T) {
			id := p.create(func(c ctrConfig) { c.Command = []string{tt.command} })
			err := p.StartContainer(t.Context(), id)
			var start *shim.StartError
			if !errors.As(err, &start) || start.Reason != tt.reason || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v", err)
			}
			st := p.status(id)
			if st.GetReason() != "StartError" || st.GetExitCode() != 128 || !strings.Contains(st.GetMessage(), tt.text) {
				t.Errorf("status %v", st)
			}
		})
	}
}

func TestRealOOM(t *testing.T) {
	p := real(t).pod(t)
	id := p.start(func(c ctrConfig) {
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20, OomScoreAdj: 900}
	}, "alloc", "200")
	if st := p.await(id); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
		t.Errorf("status %v", st)
	}
}

func TestRealSharedProcessNamespace(t *testing.T) {
	p := real(t).pod(t, func(c podConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	})
	p.start(nil, "serve", "8081")
	v := p.report(nil)
	if v.PID == 1 || !slices.ContainsFunc(v.Processes, func(s string) bool { return strings.Contains(s, "berth-shim pause") }) ||
		!slices.Contains(v.Processes, "/inside serve 8081") {
		t.Errorf("pid %d, processes %v", v.PID, v.Processes)
	}
}

func TestRealTargetProcessNamespace(t *testing.T) {
	p := real(t).pod(t)
	target := p.start(nil, "serve", "8081")
	v := p.report(func(c ctrConfig) {
		c.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: target}
	})
	if !slices.Contains(v.Processes, "/inside serve 8081") {
		t.Errorf("processes %v", v.Processes)
	}
}

func TestRealHostNamespaces(t *testing.T) {
	p := real(t).pod(t, func(c podConfig) {
		o := c.Linux.SecurityContext.NamespaceOptions
		o.Network, o.Ipc, o.Pid = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE
	})
	v := p.report(nil)
	for _, ns := range []string{"net", "ipc", "uts", "pid"} {
		if host, err := os.Readlink("/proc/self/ns/" + ns); err != nil || v.Namespaces[ns] != host {
			t.Errorf("%s namespace %s, host has %s (%v)", ns, v.Namespaces[ns], host, err)
		}
	}
}

func TestRealUserNamespace(t *testing.T) {
	for name, pid := range map[string]runtimeapi.NamespaceMode{
		"with a pid namespace for each container": runtimeapi.NamespaceMode_CONTAINER,
		"with a shared pid namespace":             runtimeapi.NamespaceMode_POD,
	} {
		t.Run(name, func(t *testing.T) { testUserNamespace(t, pid) })
	}
}

func testUserNamespace(t *testing.T, pid runtimeapi.NamespaceMode) {
	p := real(t).pod(t, func(c podConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Pid = pid
		maps := []*runtimeapi.IDMapping{{HostId: 200000, Length: 65536}}
		c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: maps, Gids: maps}
	})
	id := p.start(func(c ctrConfig) {
		c.Linux.SecurityContext.RunAsUser = &runtimeapi.Int64Value{}
		c.Linux.SecurityContext.NamespaceOptions.Pid = pid
	}, "report-and-sleep")
	p.awaitLog(id, "}")
	v := p.parse(p.log(id))
	if v.UIDMap != "0 200000 65536" || !strings.HasPrefix(v.Status["Uid"], "0\t") {
		t.Errorf("uid map %q, uid %q", v.UIDMap, v.Status["Uid"])
	}
	c, err := p.container(id)
	if err != nil {
		t.Fatal(err)
	}
	if got := owner(t, fmt.Sprintf("/proc/%d", c.init())); got != 200000 {
		t.Errorf("on the host it runs as %d", got)
	}
	p.exec(id, "write", "/etc/made", "x") // the image's files belong to the mapped root
	p.exec(id, "write", "/dev/shm/made", "x")
}

func TestRealResources(t *testing.T) {
	p := real(t).pod(t)
	id := p.start(func(c ctrConfig) {
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{
			CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 64 << 20, OomScoreAdj: 500,
			CpusetCpus: "0", Unified: map[string]string{"pids.max": "50"},
		}
	}, "report-and-sleep")
	p.awaitLog(id, "}")
	if v := p.parse(p.log(id)); v.OOMScore != "500" || v.Status["Cpus_allowed_list"] != "0" {
		t.Errorf("oom_score_adj %s, cpus %s", v.OOMScore, v.Status["Cpus_allowed_list"])
	}
	limit := func(v1, v2 string) string {
		path := "/sys/fs/cgroup/" + v1
		if p.host.Unified {
			path = "/sys/fs/cgroup/" + v2
		}
		dir, file := filepath.Split(path)
		if p.host.Unified {
			dir = "/sys/fs/cgroup"
		}
		raw, err := os.ReadFile(filepath.Join(dir, p.node.Cgroup, id, file))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(raw))
	}
	if got := limit("memory/memory.limit_in_bytes", "memory.max"); got != fmt.Sprint(64<<20) {
		t.Errorf("memory %s", got)
	}
	if got := limit("pids/pids.max", "pids.max"); got != "50" {
		t.Errorf("pids %s", got)
	}
	err := p.UpdateContainerResources(t.Context(), id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 96 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	if got := limit("memory/memory.limit_in_bytes", "memory.max"); got != fmt.Sprint(96<<20) {
		t.Errorf("memory after the update %s", got)
	}
	st, err := p.ContainerStats(t.Context(), id)
	if err != nil || st.GetMemory().GetUsageBytes().GetValue() == 0 || st.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 {
		t.Errorf("stats %v (%v)", st, err)
	}
	sb, err := p.PodSandboxStats(t.Context(), p.id)
	if err != nil || sb.GetLinux().GetNetwork().GetDefaultInterface().GetName() != "eth0" || len(sb.GetLinux().GetContainers()) != 1 {
		t.Errorf("stats %v (%v)", sb, err)
	}
}

// The agent goes away and comes back: its containers run on, their logs and exit
// codes are whole.
func TestRealTakeOver(t *testing.T) {
	r := real(t)
	p := r.pod(t)
	talking := p.start(nil, "lines", "300", "20") // longer than all until the restart
	sleeping := p.start(nil, "sleep")
	ending := p.start(nil, "lines", "3", "1")
	p.awaitLog(talking, "line 10\n")
	before := p.status(talking)
	r.restart(t)
	if after := p.status(talking); after.String() != before.String() {
		t.Errorf("status was %v, is %v", before, after)
	}
	p.exec(sleeping, "report")
	if st := p.await(talking); st.GetExitCode() != 0 {
		t.Errorf("status %v", st)
	}
	var want strings.Builder
	for i := range 300 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if got := p.log(talking); got != want.String() {
		t.Errorf("log has %d lines, want 300", strings.Count(got, "\n"))
	}
	if st := p.await(ending); st.GetExitCode() != 0 || st.GetReason() != "Completed" {
		t.Errorf("status %v", st)
	}
	if err := p.StopContainer(t.Context(), sleeping, 30); err != nil {
		t.Fatal(err)
	}
	if st := p.status(sleeping); st.GetExitCode() != 0 {
		t.Errorf("status %v", st)
	}
}

// Of many containers that end at once none is forgotten.
func TestRealManyExits(t *testing.T) {
	p := real(t).pod(t)
	var ids []string
	for range 30 {
		ids = append(ids, p.start(nil, "exit", "7"))
	}
	for _, id := range ids {
		if st := p.await(id); st.GetExitCode() != 7 {
			t.Errorf("status %v", st)
		}
	}
}

// Many pods are made at the same time, and go at the same time.
func TestRealManyPodsAtOnce(t *testing.T) {
	r := real(t)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			config := benchPod(r, fmt.Sprint("many-", i))
			id, err := r.RunPodSandbox(t.Context(), config, "")
			if err != nil {
				t.Error(err)
				return
			}
			c, err := r.CreateContainer(t.Context(), id, &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: insideImage}, Args: []string{"sleep"},
				Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					NamespaceOptions: config.Linux.SecurityContext.NamespaceOptions,
				}},
			}, config)
			if err == nil {
				err = r.StartContainer(t.Context(), c)
			}
			if err != nil {
				t.Error(err)
			}
			if err := r.RemovePodSandbox(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
