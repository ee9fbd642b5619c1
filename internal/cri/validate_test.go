package cri

import (
	"os"
	"path/filepath"
	"strings"
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

// A misspelled capability would be left out, and one to be dropped would stay.
func TestCapabilitiesThatNoKernelHasAreRefused(t *testing.T) {
	f := newFixture(t)
	sb, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, caps := range map[string]*runtimeapi.Capability{
		"added":         {AddCapabilities: []string{"NET_ADMIN", "NOSUCH"}},
		"dropped":       {DropCapabilities: []string{"ALL", "nosuch"}},
		"added ambient": {AddAmbientCapabilities: []string{"CAP_NOSUCH"}},
		"known":         {AddCapabilities: []string{"all", "CAP_NET_ADMIN", "checkpoint_restore"}, DropCapabilities: []string{"ALL"}},
	} {
		config := containerConfig("app-" + strings.ReplaceAll(name, " ", "-"))
		config.Linux.SecurityContext.Capabilities = caps
		_, err := f.CreateContainer(t.Context(), sb, config, nil)
		switch {
		case name == "known" && err != nil:
			t.Errorf("%s: %v", name, err)
		case name != "known" && (status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "CAP_NOSUCH") || strings.Contains(err.Error(), "NET_ADMIN")):
			t.Errorf("%s: %v, want that CAP_NOSUCH alone is refused", name, err)
		}
	}
}

// The agent calls without gRPC, and users read what it was told.
func TestErrorsHaveCodesAndPlainWords(t *testing.T) {
	f := newFixture(t)
	sysctl := sandboxConfig("web")
	sysctl.Linux.Sysctls = map[string]string{"vm.swappiness": "1"}
	_, refused := f.RunPodSandbox(t.Context(), sysctl, "")
	_, absent := f.PodSandboxStatus(t.Context(), "nosuch", false)
	for _, c := range []struct {
		err  error
		code codes.Code
		text string
	}{
		{refused, codes.InvalidArgument, `sysctl "vm.swappiness" can't be set for a pod: it belongs to the whole machine`},
		{absent, codes.NotFound, `cannot find sandbox "nosuch"`},
		{unsupported("that"), codes.Unimplemented, "that is not supported by berth's embedded runtime"},
	} {
		if s := status.Convert(c.err); c.err == nil || c.err.Error() != c.text || s.Code() != c.code || s.Message() != c.text {
			t.Errorf("error is %v, to a caller of the CRI %v; want %v: %s", c.err, s, c.code, c.text)
		}
	}
	// Errors made by package status say "rpc error: code = …".
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && (strings.Contains(string(text), "status.Error(") || strings.Contains(string(text), "status.Errorf(")) {
			t.Errorf("%s makes errors with package status: use coded", file)
		}
	}
}
