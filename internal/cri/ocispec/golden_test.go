package ocispec

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// input is an ordinary container on a host with cgroup v2.
func input(t *testing.T) Input {
	t.Helper()
	base, err := oci.GenerateSpecWithPlatform(namespaces.WithNamespace(context.Background(), "berth"), nil, "linux/amd64", &containers.Container{ID: "base"})
	if err != nil {
		t.Fatal(err)
	}
	return Input{
		ID: "c1",
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
			Args:     []string{"--port", "80"},
			Envs:     []*runtimeapi.KeyValue{{Key: "MODE", Value: []byte("prod")}},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{
					CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 64 << 20, OomScoreAdj: 985,
					HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 0}},
					Unified:        map[string]string{"memory.oom.group": "1"},
				},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					MaskedPaths: []string{"/proc/kcore"}, ReadonlyPaths: []string{"/proc/sys"},
					Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
				},
			},
		},
		Sandbox: &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{},
		}},
		Image: &imgspec.ImageConfig{
			Entrypoint: []string{"/app"}, Cmd: []string{"serve"}, Env: []string{"MODE=dev", "LANG=C"}, WorkingDir: "/srv",
		},
		User:         User{UID: 1000, GID: 1001, Groups: []uint32{1001, 2000}},
		Namespaces:   Namespaces{Network: "/run/ns/s1/net", IPC: "/run/ns/s1/ipc", UTS: "/run/ns/s1/uts"},
		CgroupParent: "/kubepods/pod1",
		Hostname:     "web",
		Mounts: []Mount{
			{Source: "/vol/deep", Destination: "/data/deep", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
			{Source: "/vol/data", Destination: "/data", ReadOnly: true},
			{Source: "/run/s1/shm", Destination: "/dev/shm"},
		},
		Host: Host{
			Base:           base,
			Capabilities:   []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_SETUID"},
			Unified:        true,
			Hugetlb:        true,
			SwapLimit:      true,
			OOMScoreFloor:  -1000,
			DefaultSeccomp: func(*specs.Spec) *specs.LinuxSeccomp { return &specs.LinuxSeccomp{DefaultAction: "the-default"} },
			CgroupRoot:     "/berth",
		},
	}
}

func TestGolden(t *testing.T) {
	for name, alter := range map[string]func(*Input){
		"plain": func(*Input) {},
		"privileged": func(in *Input) {
			in.Config.Linux.SecurityContext.Privileged = true
			in.Sandbox.Linux.SecurityContext.Privileged = true
			in.Host.CgroupMountOptions = []string{"nsdelegate"}
			in.Devices = []Device{{Node: specs.LinuxDevice{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229}}}
		},
		"cgroup-v1-host-namespaces": func(in *Input) {
			in.Host.Unified, in.Host.Hugetlb, in.Host.SwapLimit = false, false, false
			in.Config.Linux.Resources.Unified = map[string]string{"pids.max": "64"}
			in.Host.OOMScoreFloor = 990
			in.Namespaces = Namespaces{PIDMode: HostPID}
			in.CgroupParent = ""
		},
		"user-namespace-shared-pid": func(in *Input) {
			in.Namespaces.User, in.Namespaces.PIDMode, in.Namespaces.PID = "/run/ns/s1/user", JoinPID, "/run/ns/s1/pid"
			in.Namespaces.Network = ""
		},
		"terminal-with-device": func(in *Input) {
			in.Config.Tty = true
			in.Config.Command = []string{"sh"}
			in.Config.Args = nil
			in.Config.WorkingDir = "relative"
			in.Config.Linux.SecurityContext.ReadonlyRootfs = true
			in.Config.Linux.SecurityContext.NoNewPrivs = true
			in.Config.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{
				DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"chown", "SYS_TIME"}, AddAmbientCapabilities: []string{"NET_BIND_SERVICE"},
			}
			in.Devices = []Device{{Node: specs.LinuxDevice{Path: "/dev/gpu", Type: "c", Major: 195, Minor: 1}, Access: "rw"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(t)
			alter(&in)
			spec, err := Build(in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(spec, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
				t.Errorf("-want +got, rewrite with -update:\n%s", diff)
			}
		})
	}
}

func TestBuildChangesNothingItWasGiven(t *testing.T) {
	in := input(t)
	in.Config.Linux.SecurityContext.Privileged, in.Sandbox.Linux.SecurityContext.Privileged = true, true
	before, err := json.Marshal([]any{in.Host.Base, in.Mounts, in.Config})
	if err != nil {
		t.Fatal(err)
	}
	first, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("equal input, other answer: %s", diff)
	}
	after, err := json.Marshal([]any{in.Host.Base, in.Mounts, in.Config})
	if err != nil || string(after) != string(before) {
		t.Errorf("input was changed (%v): %s", err, cmp.Diff(string(before), string(after)))
	}
}

func TestBuildErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		alter func(*Input)
		text  string
	}{
		"no command": {func(in *Input) { in.Config.Args, in.Image = nil, nil }, "no command specified"},
		"privileged in a plain sandbox": {func(in *Input) { in.Config.Linux.SecurityContext.Privileged = true },
			"its sandbox is not"},
		"recursive read-only and writable": {func(in *Input) { in.Mounts[2].RecursiveReadOnly = true }, "conflicts"},
		"recursive read-only and propagating": {func(in *Input) {
			in.Mounts[0].ReadOnly, in.Mounts[0].RecursiveReadOnly = true, true
		}, "private propagation"},
		"huge pages without their controller": {func(in *Input) {
			in.Host.Hugetlb = false
			in.Config.Linux.Resources.HugepageLimits[0].Limit = 1
		}, "hugetlb"},
		"a v2 key on v1":        {func(in *Input) { in.Host.Unified = false }, "memory.oom.group"},
		"seccomp not in kernel": {func(in *Input) { in.Host.DefaultSeccomp = nil }, "no seccomp"},
		"AppArmor not in kernel": {func(in *Input) {
			in.Config.Linux.SecurityContext.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "own"}
		}, "no AppArmor"},
		"a shared pid namespace that is not there": {func(in *Input) { in.Namespaces.PIDMode = JoinPID }, "pid namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(t)
			tt.alter(&in)
			if _, err := Build(in); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want %q in it", err, tt.text)
			}
		})
	}
}

func TestArgs(t *testing.T) {
	image := &imgspec.ImageConfig{Entrypoint: []string{"entry"}, Cmd: []string{"cmd"}}
	for name, tt := range map[string]struct {
		command, args []string
		image         *imgspec.ImageConfig
		want          string
	}{
		"both of the image":             {nil, nil, image, "entry cmd"},
		"arguments replace the command": {nil, []string{"a"}, image, "entry a"},
		"a command replaces both":       {[]string{"c"}, nil, image, "c"},
		"command and arguments":         {[]string{"c"}, []string{"a"}, image, "c a"},
		"an entrypoint that was reset":  {nil, nil, &imgspec.ImageConfig{Entrypoint: []string{""}, Cmd: []string{"cmd"}}, "cmd"},
	} {
		got, err := Args(&runtimeapi.ContainerConfig{Command: tt.command, Args: tt.args}, tt.image)
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tt.want)
		}
	}
}

func TestAppArmor(t *testing.T) {
	in := input(t)
	in.Host.AppArmor, in.Host.AppArmorDefault = true, "berth-default"
	profile := func(p *runtimeapi.SecurityProfile) string {
		in.Config.Linux.SecurityContext.Apparmor = p
		s, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		return s.Process.ApparmorProfile
	}
	if got := profile(nil); got != "berth-default" {
		t.Errorf("without a word: %q", got)
	}
	if got := profile(&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}); got != "" {
		t.Errorf("unconfined: %q", got)
	}
	if got := profile(&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "localhost/own"}); got != "own" {
		t.Errorf("own: %q", got)
	}
}
