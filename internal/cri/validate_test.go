package cri

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What can't be done as it is asked for is refused as an invalid argument, and
// not done in another way.
func TestUserNamespacesThatAreRefused(t *testing.T) {
	ids := func(containerID, length uint32) []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{ContainerId: containerID, HostId: 100_000, Length: length}}
	}
	for name, u := range map[string]*runtimeapi.UserNamespace{
		"of the container":   {Mode: runtimeapi.NamespaceMode_CONTAINER, Uids: ids(0, 10), Gids: ids(0, 10)},
		"of another":         {Mode: runtimeapi.NamespaceMode_TARGET, Uids: ids(0, 10), Gids: ids(0, 10)},
		"without ids":        {},
		"two mappings":       {Uids: append(ids(0, 10), ids(10, 10)...), Gids: append(ids(0, 10), ids(10, 10)...)},
		"without root":       {Uids: ids(1, 10), Gids: ids(1, 10)},
		"an empty mapping":   {Uids: ids(0, 0), Gids: ids(0, 0)},
		"different mappings": {Uids: ids(0, 10), Gids: ids(0, 11)},
	} {
		f := newFixture(t)
		config := sandboxConfig("web")
		config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = u
		if _, err := f.RunPodSandbox(t.Context(), config, ""); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want that it is refused", name, err)
		}
	}
}

func TestImageVolumeMustBeReadOnly(t *testing.T) {
	f := newFixture(t)
	sb, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	config := containerConfig("app")
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/image", Image: &runtimeapi.ImageSpec{Image: testImage}}}
	if _, err := f.CreateContainer(t.Context(), sb, config, nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a writable image: %v, want that it is refused", err)
	}
}
