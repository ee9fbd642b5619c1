package cli

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/testutil/images"
)

// criClient talks to a runtime that berth cri serves.
func criClient(t *testing.T, socket string) runtimeapi.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// What is dead goes by itself if that is asked for; what lives stays.
func TestCRICollectsTheDead(t *testing.T) {
	n := newNode(t)
	served := n.start("cri", "--gc-every", "50ms", "--gc-max-age", "1ms")
	served.await("serving the CRI")
	client := criClient(t, n.home().CRISocket())
	sandbox := func(name string) string {
		r, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}, LogDirectory: t.TempDir(),
		}})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetPodSandboxId()
	}
	lives, dies := sandbox("lives"), sandbox("dies")
	if _, err := client.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: dies}); err != nil {
		t.Fatal(err)
	}
	served.await("removing a dead sandbox.*" + dies)
	for deadline := time.Now().Add(patience); ; time.Sleep(pollEvery) {
		r, err := client.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if all := r.GetItems(); len(all) == 1 && all[0].GetId() == lives {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("there are %v, want %s alone", all, lives)
		}
	}
	served.signal(syscall.SIGTERM)
	served.wait()
}

// Images can be brought along, for a machine without a registry.
func TestCRIImports(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	img := images.Image(t, images.Layer(t, images.Text(map[string]string{"file": "text"})))
	if err := tarball.WriteToFile(archive, name.MustParseReference("example.com/tool:1"), img); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	served := n.start("cri", "--import", archive)
	served.await("serving the CRI")
	conn, err := grpc.NewClient("unix://"+n.home().CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := runtimeapi.NewImageServiceClient(conn).ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "example.com/tool:1"}})
	if err != nil || len(r.GetImage().GetRepoTags()) != 1 {
		t.Errorf("the image is %v, %v", r.GetImage(), err)
	}
	served.signal(syscall.SIGINT)
	if code := served.wait(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	if out, code := newNode(t).berth("cri", "--import", archive+"x"); code != 1 || !strings.Contains(out, archive+"x") {
		t.Errorf("without the archive it ends with %d: %s", code, out)
	}
}

// The runtime is served, its sandboxes outlive a kill, and neither another
// server nor pods of berth's own get in its way.
func TestCRIIsServed(t *testing.T) {
	n := newNode(t)
	socket := filepath.Join(t.TempDir(), "cri.sock")
	served := n.start("cri", "--listen", "unix://"+socket)
	served.await("serving the CRI")
	client := criClient(t, socket)
	if v, err := client.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil || v.GetRuntimeName() != "berth" {
		t.Errorf("the version is %v, %v", v, err)
	}
	sandbox, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"}, LogDirectory: t.TempDir(),
	}})
	if err != nil {
		t.Fatal(err)
	}

	if out, code := n.berth("cri", "--listen", "unix://"+socket+"2"); code != 1 || !strings.Contains(out, "another berth runs on this root") {
		t.Errorf("a second server of the root ends with %d: %s", code, out)
	}
	other := newNode(t)
	if out, code := other.berth("cri", "--listen", "unix://"+socket); code != 1 || !strings.Contains(out, "another process serves there") {
		t.Errorf("a second server of the socket ends with %d: %s", code, out)
	}

	served.signal(syscall.SIGKILL)
	served.wait()
	if out, code := n.berth("run", n.file(pod("job", "Never", 1, "true"))); code != 1 || !strings.Contains(out, "is that of berth cri") {
		t.Errorf("berth run on this root ends with %d: %s", code, out)
	}
	again := n.start("cri", "--listen", socket)
	again.await("serving the CRI")
	got, err := criClient(t, socket).PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.GetPodSandboxId()})
	if err != nil || got.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("after a kill the sandbox is %v, %v", got.GetStatus(), err)
	}
	again.signal(syscall.SIGTERM)
	again.await("containers run on")
	if code := again.wait(); code != 0 {
		t.Errorf("SIGTERM ends it with %d", code)
	}
}
