package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

func TestPodsOwnCgroup(t *testing.T) {
	sandboxIn := func(id, uid, parent string) *sandbox {
		rec := store.Sandbox{ID: id, State: store.SandboxReady}
		rec.Config.P = &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid},
			Linux:    &runtimeapi.LinuxPodSandboxConfig{CgroupParent: parent},
		}
		return newSandbox(rec)
	}
	s := &Service{cfg: Config{CgroupRoot: "/berth"}, sandboxes: map[string]*sandbox{}}
	want := map[string]string{}
	for _, c := range []struct{ id, uid, parent, want string }{
		{"own", "1", "/kubepods/pod1", "/kubepods/pod1"},
		{"own-again", "1", "/kubepods/pod1", "/kubepods/pod1"},
		{"relative", "2", "kubepods/pod2/", "/kubepods/pod2"},
		{"none-named", "3", "", ""},
		{"the-runtimes", "4", "/berth", ""},
		{"shared-a", "5", "/shared", ""},
		{"shared-b", "6", "/shared", ""},
		{"above-others", "7", "/kubepods", ""},
		{"the-root", "8", "/", ""},
		{"without-uid-a", "", "/nameless", ""},
		{"without-uid-b", "", "/nameless", ""},
	} {
		s.sandboxes[c.id] = sandboxIn(c.id, c.uid, c.parent)
		want[c.id] = c.want
	}
	all := s.podCgroups()
	for id, sb := range s.sandboxes {
		if got := all.of(sb); got != want[id] {
			t.Errorf("%s: %q, want %q", id, got, want[id])
		}
	}
}

func TestPodStats(t *testing.T) {
	f := newFixture(t)
	start := func(name, parent string) string {
		config := sandboxConfig(name)
		config.Linux.CgroupParent = parent
		id, err := f.RunPodSandbox(t.Context(), config, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{"one", "two"} {
			c, err := f.CreateContainer(t.Context(), id, containerConfig(c), nil)
			if err == nil {
				err = f.StartContainer(t.Context(), c)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return id
	}
	for name, c := range map[string]struct {
		parent              string
		cpu, set, processes uint64
		available           *runtimeapi.UInt64Value
	}{
		"in a cgroup of its own":    {"/kubepods/pod1", 7e9, 70, 5, nil},
		"whose cgroup is gone":      {"/kubepods/gone", 6e9, 20, 0, uint64Value(40)},
		"in the cgroup of all pods": {"", 6e9, 20, 0, uint64Value(40)},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := f.PodSandboxStats(t.Context(), start(t.Name(), c.parent))
			linux := st.GetLinux()
			if err != nil || len(linux.GetContainers()) != 2 || linux.GetNetwork().GetTimestamp() == 0 {
				t.Fatalf("%v, %v", st, err)
			}
			if got := linux.GetCpu().GetUsageCoreNanoSeconds().GetValue(); got != c.cpu {
				t.Errorf("cpu %d", got)
			}
			if got := linux.GetMemory().GetWorkingSetBytes().GetValue(); got != c.set {
				t.Errorf("memory %d", got)
			}
			if got := linux.GetMemory().GetAvailableBytes(); got.String() != c.available.String() {
				t.Errorf("available %v", got)
			}
			if got := linux.GetProcess().GetProcessCount().GetValue(); got != c.processes {
				t.Errorf("processes %d", got)
			}
		})
	}
}
