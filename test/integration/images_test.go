package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/testutil/images"
)

// testImage is an image that holds berth-demo and a file of random bytes.
func testImage(t *testing.T, sizeBytes int) v1.Image {
	t.Helper()
	demo, err := os.ReadFile("../../bin/berth-demo")
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, sizeBytes)
	for i, x := 0, uint32(1); i < len(random); i++ {
		x = x*1664525 + 1013904223
		random[i] = byte(x >> 24)
	}
	// Programs need their mode, which files of a layer don't have.
	return images.Image(t, images.RawLayer(t, []images.Entry{
		program("berth-demo", demo), {Header: header("random", 0o644, len(random)), Content: random},
	}))
}

func TestImageThatIsMissingIsTriedAgainAndFoundAfterAnImport(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	registry := images.NewRegistry(t, images.RegistryOptions{})
	ref := registry.Host + "/late:1"
	p := n.run(t, strings.Replace(onePod("missing-image", `command: [/berth-demo, serve]`), "image: demo", "image: "+ref, 1))
	if message := p.reason(t, "app", "ErrImagePull"); !strings.Contains(message, ref) {
		t.Errorf("the message does not name the image: %q", message)
	}
	if message := p.reason(t, "app", "ImagePullBackOff"); !strings.Contains(message, ref) {
		t.Errorf("the message does not name the image: %q", message)
	}
	p.event(t, "Failed")
	p.event(t, "BackOff")

	dir := t.TempDir()
	to, err := layout.Write(dir, emptyIndex)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.AppendImage(testImage(t, 100), layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref})); err != nil {
		t.Fatal(err)
	}
	if _, err := n.driver.(*inProcess).agent.ImportImages(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	p.ready(t)
	p.stop(t)
}

func TestImageThatMayNotBePulledIsNot(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	registry := images.NewRegistry(t, images.RegistryOptions{})
	ref := registry.Push("there:1", testImage(t, 10))
	p := n.run(t, strings.Replace(onePod("never-pull", "command: [/berth-demo, serve]\nimagePullPolicy: Never"), "image: demo", "image: "+ref, 1))
	if message := p.reason(t, "app", "ErrImageNeverPull"); !strings.Contains(message, ref) {
		t.Errorf("the message does not name the image: %q", message)
	}
	if registry.Gets("manifests", "1") != 0 {
		t.Error("the registry was asked")
	}
	p.stop(t)
}

func TestImageNameThatIsNone(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, strings.Replace(onePod("bad-image", ""), "image: demo", "image: Capital:1", 1))
	p.reason(t, "app", "InvalidImageName")
	p.stop(t)
}

func TestPrivateRegistryWantsTheSecretAndShowsProgress(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	registry := images.NewRegistry(t, images.RegistryOptions{Auth: images.BearerAuth, User: "me", Password: "let me in"})
	ref := registry.Push("private:1", testImage(t, 4<<20))
	text := strings.Replace(onePod("private-image", "command: [/berth-demo, serve]", "imagePullSecrets: [{name: private-image}]"), "image: demo", "image: "+ref, 1)
	p := n.run(t, text)
	p.reason(t, "app", "ErrImagePull")
	n.apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: private-image}
type: kubernetes.io/dockerconfigjson
stringData:
  .dockerconfigjson: '{"auths":{"`+registry.Host+`":{"username":"me","password":"let me in"}}}'
`)
	p.ready(t)
	p.wait(t, "pulled with progress", func(u agent.Update) bool {
		return u.Progress != nil && u.Progress.Container == "app" && u.Progress.Total > 4<<20 && u.Progress.Done <= u.Progress.Total
	})
	p.stop(t)
}

// That an image is here gives a pod no right to it, also after a restart of the
// agent; that somebody imports it does.
func TestImageOfASecretIsForPodsThatHaveIt(t *testing.T) {
	n := newNode(t)
	registry := images.NewRegistry(t, images.RegistryOptions{Auth: images.BearerAuth, User: "me", Password: "let me in"})
	img := testImage(t, 100)
	ref := registry.Push("secret:1", img)
	n.apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: mine}
type: kubernetes.io/dockerconfigjson
stringData:
  .dockerconfigjson: '{"auths":{"`+registry.Host+`":{"username":"me","password":"let me in"}}}'
`)
	manifest := func(name, container string, spec ...string) string {
		return strings.Replace(onePod(name, "command: [/berth-demo, serve]\n"+container, spec...), "image: demo", "image: "+ref, 1)
	}
	const has = "imagePullSecrets: [{name: mine}]"
	n.run(t, manifest("has-it", "", has)).ready(t)
	n.halt(t)
	n.start(t)
	if message := n.run(t, manifest("has-it-too", "", has)).event(t, "Pulled"); !strings.Contains(message, "already present") {
		t.Errorf("the image is here, and the secret the same: %q", message)
	}
	without := n.run(t, manifest("has-it-not", ""))
	if message := without.reason(t, "app", "ErrImagePull"); !strings.Contains(message, "access denied by the registry") {
		t.Errorf("the message does not say why: %q", message)
	}
	n.run(t, manifest("never-pulls", "imagePullPolicy: Never")).reason(t, "app", "ErrImageNeverPull")
	volume := n.run(t, strings.Replace(onePod("image-volume-without", "volumeMounts: [{name: i, mountPath: /i}]",
		"volumes: [{name: i, image: {reference: REF}}]"), "REF", "'"+ref+"'", 1))
	if message := volume.event(t, "FailedMount"); !strings.Contains(message, "access denied by the registry") {
		t.Errorf("the volume's event does not say why: %q", message)
	}

	dir := t.TempDir()
	to, err := layout.Write(dir, emptyIndex)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref})); err != nil {
		t.Fatal(err)
	}
	if _, err := n.driver.(*inProcess).agent.ImportImages(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	without.ready(t)
}

func TestCorruptAndTruncatedBlobsAreFetchedAgain(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for name, kind := range map[string]images.FaultKind{"corrupt": images.Corrupt, "truncated": images.Truncate} {
		registry := images.NewRegistry(t, images.RegistryOptions{})
		want := 1<<20 + int(kind)
		ref := registry.Push(name+":1", testImage(t, want))
		registry.Misbehave(images.Fault{Kind: kind, Target: "blobs", Times: 1})
		p := n.run(t, strings.Replace(onePod(name+"-blob", "command: [/berth-demo, serve]"), "image: demo", "image: "+ref, 1))
		p.ready(t)
		code, out := p.exec(t, "app", "stat", "/random")
		if code != 0 || !bytes.Contains([]byte(out), []byte("104857")) {
			t.Errorf("%s: the image is not whole: %d %q", name, code, out)
		}
		p.stop(t)
	}
}

func TestFullDiskDuringAPullIsSaidAndOverWhenThereIsRoom(t *testing.T) {
	n := newNode(t, func(c *agent.Config) { c.Root = smallDisk(t, 48<<20) })
	registry := images.NewRegistry(t, images.RegistryOptions{})
	ref := registry.Push("large:1", testImage(t, 12<<20))
	ballast := filepath.Join(n.cfg.Root, "ballast")
	fill(t, ballast)
	p := n.run(t, strings.Replace(onePod("full-disk", "command: [/berth-demo, serve]"), "image: demo", "image: "+ref, 1))
	if message := p.reason(t, "app", "ErrImagePull"); !strings.Contains(message, "no space left") {
		t.Errorf("the message does not say why: %q", message)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	p.ready(t)
	p.stop(t)
}
