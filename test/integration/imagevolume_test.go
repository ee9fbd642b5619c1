package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/testutil/images"
)

// An image is a volume: its files are there, below a sub-path too, and can't be
// written; a pod with users of its own owns them.
func TestImageIsAVolume(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	registry := images.NewRegistry(t, images.RegistryOptions{})
	ref := registry.Push("data:1", images.Image(t,
		images.Layer(t, images.Text(map[string]string{"top": "old", "dir/below": "deep"})),
		images.Layer(t, images.Text(map[string]string{"top": "new"})),
	))
	for name, users := range map[string]string{"image-volume": "hostUsers: true", "image-volume-users": "hostUsers: false"} {
		p := n.run(t, onePod(name, `
args: [serve]
volumeMounts:
- {name: i, mountPath: /data}
- {name: i, mountPath: /part, subPath: dir}`, users, "volumes: [{name: i, image: {reference: "+ref+", pullPolicy: IfNotPresent}}]"))
		p.prints(t, "app", "new", "cat", "/data/top")
		p.prints(t, "app", "deep", "cat", "/part/below")
		p.prints(t, "app", " 0:0 ", "stat", "/data/top")
		for _, file := range []string{"/data/x", "/part/x"} {
			if code, out := p.exec(t, "app", "write", file, "text"); code == 0 || !strings.Contains(out, "read-only") {
				t.Errorf("%s: an image volume is written to: %q", file, out)
			}
		}
		p.stop(t)
	}
	if got := registry.Gets("manifests", "1"); got > 2 {
		t.Errorf("the image was asked for %d times with IfNotPresent", got)
	}
}

func TestImageVolumeThatIsNotThere(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	registry := images.NewRegistry(t, images.RegistryOptions{})
	ref := registry.Push("data:1", images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "b"}))))
	for name, c := range map[string]struct{ image, says string }{
		"volume-missing": {"{reference: " + registry.Host + "/none:1}", registry.Host + "/none:1"},
		"volume-never":   {"{reference: " + ref + ", pullPolicy: Never}", "pull policy of Never"},
	} {
		p := n.run(t, onePod(name, "args: [serve]\nvolumeMounts: [{name: i, mountPath: /data}]", "volumes: [{name: i, image: "+c.image+"}]"))
		if message := p.event(t, "FailedMount"); !strings.Contains(message, c.says) || !strings.Contains(message, `volume "i"`) {
			t.Errorf("%s: the event says %q", name, message)
		}
		p.stop(t)
	}
	// A path that the image does not have.
	p := n.run(t, onePod("volume-no-path", "args: [serve]\nvolumeMounts: [{name: i, mountPath: /data, subPath: none}]",
		"volumes: [{name: i, image: {reference: "+ref+"}}]"))
	if message := p.reason(t, "app", "CreateContainerError"); !strings.Contains(message, `no path "none"`) {
		t.Errorf("the message is %q", message)
	}
	p.stop(t)
}

// The image of a volume is in use: pruning leaves it. If somebody removes it all
// the same, a container that starts again gets it again.
func TestImageOfAVolumeIsInUse(t *testing.T) {
	n := newNode(t) // pruning is for all of a node
	registry := images.NewRegistry(t, images.RegistryOptions{})
	ref := registry.Push("used:1", images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "b"}))))
	p := n.run(t, onePod("volume-used", "args: [serve]\nvolumeMounts: [{name: i, mountPath: /data}]",
		"volumes: [{name: i, image: {reference: "+ref+"}}]"))
	p.ready(t)
	a := n.driver.(*inProcess).agent
	if _, err := a.PruneImages(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	have, err := a.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(have, func(i imagestore.Image) bool { return slices.Contains(i.Tags, ref) }) {
		t.Errorf("the image was pruned; left: %+v", have)
	}
	if err := a.RemoveImage(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	p.prints(t, "app", "b", "cat", "/data/a")
	p.answers(t, "/exit?code=1", "ending with 1")
	p.restarts(t, "app", 1) // which it can't without its volume
	p.stop(t)
}
