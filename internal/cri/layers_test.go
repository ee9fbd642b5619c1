package cri

import (
	"archive/tar"
	"fmt"
	"os"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/testutil/images"
)

// An image may have more layers than mount(2) takes as they are: as a root file
// system, with an id-mapped user, and as a volume.
func TestRealImageOfManyLayers(t *testing.T) {
	r := real(t)
	program, err := os.ReadFile(r.node.Path("inside"))
	if err != nil {
		t.Fatal(err)
	}
	const many = 120
	layers := []v1.Layer{images.RawLayer(t, []images.Entry{{
		Header: tar.Header{Typeflag: tar.TypeReg, Name: "inside", Mode: 0o755}, Content: program,
	}})}
	for i := len(layers); i < many; i++ {
		layers = append(layers, images.Layer(t, images.Text(map[string]string{fmt.Sprintf("layers/%d", i): fmt.Sprint(i), "layers/last": fmt.Sprint(i)})))
	}
	registry := images.NewRegistry(t, images.RegistryOptions{})
	ref := registry.Push("layers:1", images.Image(t, layers...))
	if _, err := r.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: ref}, nil, nil); err != nil {
		t.Fatal(err)
	}
	for name, alter := range map[string]func(*runtimeapi.PodSandboxConfig){
		"with the host's users": func(*runtimeapi.PodSandboxConfig) {},
		"with users of its own": func(c *runtimeapi.PodSandboxConfig) {
			ids := []*runtimeapi.IDMapping{{HostId: 1 << 20, ContainerId: 0, Length: 1 << 16}}
			c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := r.pod(t, alter)
			id := p.start(func(c *runtimeapi.ContainerConfig) {
				c.Image = &runtimeapi.ImageSpec{Image: ref}
				c.Command = []string{"/inside"}
				c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/volume", Readonly: true, Image: &runtimeapi.ImageSpec{Image: ref}}}
			}, "sleep")
			for _, path := range []string{"/layers/1", "/layers/119", "/layers/last", "/volume/layers/1", "/volume/layers/last"} {
				want := path[len(path)-1:]
				if path[len(path)-2:] != "/1" {
					want = "119"
				}
				if got := p.exec(id, "cat-file", path); got != want {
					t.Errorf("%s holds %q, want %s", path, got, want)
				}
			}
		})
	}
}
