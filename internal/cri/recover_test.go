package cri

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

func TestRunningContainersAreTakenOver(t *testing.T) {
	f := newFixture(t)
	sb, id := f.runOne(t)
	before := f.statusOf(t, id)
	f.reopen(t)
	if after := f.statusOf(t, id); after.String() != before.String() {
		t.Errorf("status was %v, is %v", before, after)
	}
	if _, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), ""); err == nil {
		t.Error("the name of a taken-over sandbox is free")
	}
	f.shim.exit(id, shim.Exit{Known: true, Code: 4, At: time.Now()})
	if st := f.awaitExit(t, id); st.GetExitCode() != 4 {
		t.Errorf("status %v", st)
	}
	if err := f.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	f.wantNothing(t)
}

func TestWhatHappenedMeanwhile(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(f *fixture, id string)
		state     runtimeapi.ContainerState
		code      int32
		reason    string
	}{
		"it exited": {func(f *fixture, id string) { f.shim.exit(id, shim.Exit{Known: true, Code: 9}) },
			runtimeapi.ContainerState_CONTAINER_EXITED, 9, "Error"},
		"the shim lost it": {func(f *fixture, id string) { delete(f.shim.containers, id) },
			runtimeapi.ContainerState_CONTAINER_EXITED, UnknownExitCode, ReasonUnknown},
		"its start was not recorded": {func(f *fixture, id string) {
			c, _ := f.container(id)
			f.changeContainer(c, func(r *store.Container) { r.State, r.StartedAt = store.ContainerCreated, time.Time{} })
		}, runtimeapi.ContainerState_CONTAINER_RUNNING, 0, ""},
		"it was not yet started": {func(f *fixture, id string) {
			c, _ := f.container(id)
			f.changeContainer(c, func(r *store.Container) { r.State, r.StartedAt = store.ContainerCreated, time.Time{} })
			f.shim.containers[id].State = shim.Created
		}, runtimeapi.ContainerState_CONTAINER_CREATED, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			_, id := f.runOne(t)
			f.stop()
			f.stop = nil
			tt.meanwhile(f, id)
			f.reopen(t)
			st := f.statusOf(t, id)
			if st.GetState() != tt.state || st.GetExitCode() != tt.code || st.GetReason() != tt.reason {
				t.Errorf("status %v", st)
			}
			if tt.state == runtimeapi.ContainerState_CONTAINER_RUNNING && st.GetStartedAt() == 0 {
				t.Error("the start has no time")
			}
		})
	}
}

func TestHalfMadeThingsGo(t *testing.T) {
	f := newFixture(t)
	sb, _ := f.runOne(t)
	// What a process that was killed in the middle leaves behind.
	half := newSandbox(store.Sandbox{ID: newID(), State: store.SandboxMaking})
	half.config = sandboxConfig("half")
	half.rec.Config.P = half.config
	for _, st := range f.sandboxSteps(half)[:6] {
		if err := st.do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	halfContainer := newContainer(store.Container{ID: newID(), SandboxID: sb, State: store.ContainerMaking})
	halfContainer.config = containerConfig("half")
	halfContainer.rec.Config.P = halfContainer.config
	owner, err := f.sandbox(sb)
	if err != nil {
		t.Fatal(err)
	}
	n := &creation{sandbox: owner, container: halfContainer, image: f.images.image}
	for _, st := range f.containerSteps(n)[:4] {
		if err := st.do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Things nobody knows.
	f.images.Prepare(t.Context(), "stranger", f.images.image, imagestore.SnapshotOptions{})
	f.shim.containers["stranger"] = &shim.Status{ID: "stranger", State: shim.Running}
	if err := os.MkdirAll(f.sandboxDir("stranger"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A torn file.
	torn := filepath.Join(f.run, "state", "containers", "torn.json")
	if err := os.WriteFile(torn, []byte(`{"id":"to`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.reopen(t)
	if list := f.allSandboxes(); len(list) != 1 || list[0].id != sb {
		t.Errorf("sandboxes %v", list)
	}
	if list := f.allContainers(); len(list) != 1 {
		t.Errorf("containers %v", list)
	}
	if err := f.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	f.wantNothing(t)
}

func TestAfterARebootEverythingIsGone(t *testing.T) {
	f := newFixture(t)
	sb, _ := f.runOne(t)
	f.stop()
	f.stop = nil
	// A reboot: the shim and the mounts are gone, the disk says another boot.
	f.shim.containers = map[string]*shim.Status{}
	if err := unpin(f.namespaceDir(sb)); err != nil {
		t.Fatal(err)
	}
	if err := unmount(f.shmPath(sb)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.run, "state", "boot_id"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.reopen(t)
	f.wantNothing(t)
}

func TestSandboxThatLostItsNamespaces(t *testing.T) {
	f := newFixture(t)
	sb, id := f.runOne(t)
	f.stop()
	f.stop = nil
	if err := unmount(f.pinPath(sb, nsNet)); err != nil {
		t.Fatal(err)
	}
	f.reopen(t)
	r, err := f.PodSandboxStatus(t.Context(), sb, false)
	if err != nil || r.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("%v, %v", r, err)
	}
	if st := f.statusOf(t, id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("its container is %v", st)
	}
}
