package store

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func open2(t *testing.T, dir, boot string) (*Store, bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "boot")
	if err := os.WriteFile(file, []byte(boot), 0o600); err != nil {
		t.Fatal(err)
	}
	s, rebooted, err := open(dir, file)
	if err != nil {
		t.Fatal(err)
	}
	return s, rebooted
}

func objects() (Sandbox, Container) {
	sb := Sandbox{ID: "s1", State: SandboxReady, CreatedAt: time.Unix(1, 23).UTC(), IPs: []string{"10.0.0.1"}}
	sb.Config.P = &runtimeapi.PodSandboxConfig{Hostname: "web", Annotations: map[string]string{"a": "b"}}
	c := Container{ID: "c1", SandboxID: "s1", State: ContainerExited, ExitCode: -1, FinishedAt: time.Unix(2, 5).UTC(), UID: 4000000000}
	c.Config.P = &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "K", Value: []byte{0, 255}}}, StopSignal: runtimeapi.Signal_SIGNAL_SIGRTMIN}
	return sb, c
}

func TestObjectsComeBack(t *testing.T) {
	dir := t.TempDir()
	s, rebooted := open2(t, dir, "a")
	if rebooted {
		t.Error("a new folder is not a reboot")
	}
	sb, c := objects()
	if err := s.PutSandbox(sb); err != nil {
		t.Fatal(err)
	}
	if err := s.PutContainer(c); err != nil {
		t.Fatal(err)
	}
	s, rebooted = open2(t, dir, "a")
	got, err := s.Load()
	want := Loaded{Sandboxes: []Sandbox{sb}, Containers: []Container{c}, BrokenSandboxes: map[string]error{}, BrokenContainers: map[string]error{}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || rebooted || diff != "" {
		t.Errorf("%v, rebooted %v: %s", err, rebooted, diff)
	}
	for range 2 {
		if err := s.DeleteSandbox("s1"); err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteContainer("c1"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Load(); err != nil || len(got.Sandboxes)+len(got.Containers) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestARebootDropsEverything(t *testing.T) {
	dir := t.TempDir()
	s, _ := open2(t, dir, "a")
	sb, c := objects()
	if err := s.PutSandbox(sb); err != nil {
		t.Fatal(err)
	}
	if err := s.PutContainer(c); err != nil {
		t.Fatal(err)
	}
	s, rebooted := open2(t, dir, "b")
	got, err := s.Load()
	if err != nil || !rebooted || len(got.Sandboxes)+len(got.Containers) > 0 {
		t.Errorf("rebooted %v: %+v, %v", rebooted, got, err)
	}
	if _, rebooted = open2(t, dir, "b"); rebooted {
		t.Error("the same boot is taken for another")
	}
}

// Whatever a killed write leaves costs at most its own object.
func TestTornFiles(t *testing.T) {
	dir := t.TempDir()
	s, _ := open2(t, dir, "a")
	sb, c := objects()
	if err := s.PutSandbox(sb); err != nil {
		t.Fatal(err)
	}
	if err := s.PutContainer(c); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"torn.json": `{"id":`, "empty.json": "", "odd.json": `{"id":"odd","config":{"tty":7}}`, "bare.json": `{"id":"bare"}`, "c1.tmp": "half"} {
		if err := os.WriteFile(filepath.Join(dir, containers, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Load()
	if err != nil || len(got.Containers) != 1 || len(got.BrokenContainers) != 4 || len(got.BrokenSandboxes) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, containers, "c1.tmp")); !os.IsNotExist(err) {
		t.Errorf("an unfinished file stays: %v", err)
	}
}

func TestAFullDiskKeepsTheOldState(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: uses /dev/full")
	}
	dir := t.TempDir()
	s, _ := open2(t, dir, "a")
	sb, _ := objects()
	if err := s.PutSandbox(sb); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(dir, sandboxes, "s1.tmp")); err != nil {
		t.Fatal(err)
	}
	broken := sb
	broken.State = SandboxNotReady
	if err := s.PutSandbox(broken); err == nil {
		t.Error("no error")
	}
	got, err := s.Load()
	if err != nil || len(got.Sandboxes) != 1 || got.Sandboxes[0].State != SandboxReady {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFieldsOfNewerVersionsAreDropped(t *testing.T) {
	dir := t.TempDir()
	s, _ := open2(t, dir, "a")
	sb, _ := objects()
	if err := s.PutSandbox(sb); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, sandboxes, "s1.json")
	if err := os.WriteFile(path, []byte(`{"id":"s1","new":1,"config":{"hostname":"web","newer":2}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := s.Load()
	if err != nil || len(got.Sandboxes) != 1 || got.Sandboxes[0].Config.P.GetHostname() != "web" {
		t.Errorf("%+v, %v", got, err)
	}
}
