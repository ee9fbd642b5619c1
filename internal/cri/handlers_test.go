package cri

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/testutil/ociruntimes"
)

func TestParseRuntimeHandler(t *testing.T) {
	dir := t.TempDir()
	program, text := filepath.Join(dir, "runc"), filepath.Join(dir, "text")
	for path, mode := range map[string]os.FileMode{program: 0o755, text: 0o644} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for input, want := range map[string]RuntimeHandler{
		"runc=" + program: {Name: "runc", Binary: program},
		"my-vm=" + program + ",debug,platform=kvm=x": {Name: "my-vm", Binary: program, Args: []string{"--debug", "--platform=kvm=x"}},
	} {
		got, err := ParseRuntimeHandler(input)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", input, err, diff)
		}
		if got.String() != input {
			t.Errorf("%s is written as %s", input, got)
		}
	}
	for input, want := range map[string]string{
		"runc":                              "want NAME=/path/of/binary",
		"runc=":                             "want NAME=/path/of/binary",
		"Runc=" + program:                   `the name "Runc" is none`,
		"berth=" + program:                  "built-in",
		"runc=usr/bin/runc":                 "not an absolute path",
		"runc=" + program + "x":             "no such file",
		"runc=" + text:                      "is not a program",
		"runc=" + dir:                       "is not a program",
		"runc=" + program + ",root=/x":      `"root" can't be set`,
		"runc=" + program + ",--debug":      "without dashes",
		"runc=" + program + ",":             "is no option",
		"runc=" + program + ",a b":          "is no option",
		"runc=" + program + ",log":          `"log" can't be set`,
		"runc=" + program + ",rootless=yes": "",
	} {
		_, err := ParseRuntimeHandler(input)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want …%s…", input, err, want)
		}
	}
	one := RuntimeHandler{Name: "runc", Binary: program}
	if err := CheckRuntimeHandlers([]RuntimeHandler{one, {Name: "other", Binary: program}, one}); err == nil || !strings.Contains(err.Error(), "another one of that name") {
		t.Errorf("two of one name: %v", err)
	}
}

func TestHandlerFeatures(t *testing.T) {
	linux := func(idmap *bool, namespaces ...string) *features.Linux {
		return &features.Linux{Namespaces: namespaces, MountExtensions: &features.MountExtensions{IDMap: &features.IDMap{Enabled: idmap}}}
	}
	for name, tc := range map[string]struct {
		told       features.Features
		rro, users bool
	}{
		"nothing":                 {features.Features{}, false, false},
		"recursive read-only":     {features.Features{MountOptions: []string{"ro", "rro"}}, true, false},
		"user namespaces":         {features.Features{Linux: linux(new(true), "pid", "user")}, false, true},
		"without id-mapped mount": {features.Features{Linux: linux(new(false), "user")}, false, false},
		"without the namespace":   {features.Features{Linux: linux(new(true), "pid")}, false, false},
	} {
		got := handlerFeatures(&tc.told)
		if got.UserNamespaces != tc.users || got.RecursiveReadOnlyMounts != tc.rro {
			t.Errorf("%s: got %v, want recursive read-only mounts %t, user namespaces %t", name, got, tc.rro, tc.users)
		}
	}
}

// What can't be run is said at the start, not to the first pod.
func TestHandlerThatCannotBeRun(t *testing.T) {
	program := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho something is missing >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h := RuntimeHandler{Name: "broken", Binary: program}
	if err := h.Check(); err == nil || !strings.Contains(err.Error(), "cannot run the program") {
		t.Errorf("Check: %v", err)
	}
	if _, err := inspectHandlers([]RuntimeHandler{h}); err == nil || !strings.Contains(err.Error(), "cannot run the program") {
		t.Errorf("inspectHandlers: %v", err)
	}
}

// What holds with the built-in handler holds with each OCI runtime.
func TestRealHandlers(t *testing.T) {
	for _, name := range ociruntimes.Names {
		t.Run("by-"+name, func(t *testing.T) {
			for name, test := range map[string]func(*testing.T){
				"defaults":       TestRealDefaults,
				"security":       TestRealSecurity,
				"seccomp":        TestRealSeccompForbids,
				"privileged":     TestRealPrivileged,
				"volumes":        TestRealDeclaredVolumes,
				"exit codes":     TestRealExitCodes,
				"out of memory":  TestRealOOM,
				"shared pids":    TestRealSharedProcessNamespace,
				"target pids":    TestRealTargetProcessNamespace,
				"host":           TestRealHostNamespaces,
				"resources":      TestRealResources,
				"take over":      TestRealTakeOver,
				"many exits":     TestRealManyExits,
				"exec":           TestRealExecStreams,
				"exec time-outs": TestRealExecTimeout,
				"attach":         TestRealAttach,
				"what it can do": testRealFeatures,
			} {
				t.Run(name, test)
			}
		})
	}
}

// Status says what a handler can do, and what it can't is refused.
func testRealFeatures(t *testing.T) {
	r := real(t)
	st, err := r.Status(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(st.GetRuntimeHandlers(), func(h *runtimeapi.RuntimeHandler) bool { return h.GetName() == handlerOf(t) })
	if i < 0 {
		t.Fatalf("handlers are %v", st.GetRuntimeHandlers())
	}
	can := st.GetRuntimeHandlers()[i].GetFeatures()
	check := func(what string, can bool, err error) {
		t.Helper()
		if can && err != nil || !can && status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %t, error %v", what, can, err)
		}
	}
	p := r.pod(t)
	if got, err := r.PodSandboxStatus(t.Context(), p.id, false); err != nil || got.GetStatus().GetRuntimeHandler() != handlerOf(t) {
		t.Errorf("the sandbox's handler: %v, %v", got, err)
	}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "rro"}, Image: &runtimeapi.ImageSpec{Image: insideImage},
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/rro", HostPath: t.TempDir(), Readonly: true, RecursiveReadOnly: true}},
		Linux:  &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: p.config.Linux.SecurityContext.NamespaceOptions}},
	}
	_, err = r.CreateContainer(t.Context(), p.id, config, p.config)
	check("recursive read-only mounts", can.GetRecursiveReadOnlyMounts(), err)

	users := sandboxConfig("users")
	mapping := []*runtimeapi.IDMapping{{HostId: 1 << 20, Length: 1 << 16}}
	users.PortMappings = nil
	users.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping, Gids: mapping}
	id, err := r.RunPodSandbox(t.Context(), users, handlerOf(t))
	check("user namespaces", can.GetUserNamespaces(), err)
	if err == nil {
		if err := r.RemovePodSandbox(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	_, err = r.RunPodSandbox(t.Context(), sandboxConfig("other"), "nothere")
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `no runtime for "nothere" is configured`) {
		t.Errorf("unknown handler: %v", err)
	}
}
