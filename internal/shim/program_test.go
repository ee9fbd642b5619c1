package shim_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/testutil/ociruntimes"
)

// programOf is the one that a test is about, as its name says; nil: libcontainer.
func programOf(t testing.TB, dir string) *shim.Program {
	t.Helper()
	_, rest, about := strings.Cut(t.Name(), "/by-")
	if !about {
		return nil
	}
	name, _, _ := strings.Cut(rest, "/")
	path, err := ociruntimes.Find(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return &shim.Program{Path: path}
}

// Create has the program of the test make the container.
func (n *node) Create(ctx context.Context, r shim.CreateRequest) (shim.CreateResult, error) {
	n.Helper()
	if n.program != nil {
		r.Program = n.program
		// A program reads the bundle itself; Debian's crun knows no newer version.
		n.rewrite(r.Bundle, func(s *specs.Spec) { s.Process.Terminal, s.Version = r.TTY, "1.0.0" })
	}
	return n.Client.Create(ctx, r)
}

// rewrite changes a bundle.
func (n *node) rewrite(bundle string, change func(*specs.Spec)) {
	n.Helper()
	path := filepath.Join(bundle, "config.json")
	var spec specs.Spec
	if err := json.Unmarshal([]byte(n.read(path)), &spec); err != nil {
		n.Fatal(err)
	}
	change(&spec)
	b, err := json.Marshal(spec)
	if err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		n.Fatal(err)
	}
}

// What holds with libcontainer holds with each program.
func TestPrograms(t *testing.T) {
	for _, program := range ociruntimes.Names {
		t.Run("by-"+program, func(t *testing.T) {
			for name, test := range map[string]func(*testing.T){
				"exits":            TestExitIsReportedAsTheKernelSaysIt,
				"signals at once":  func(t *testing.T) { testSignalAtOnce(t, 8) },
				"states":           TestStatesOfALife,
				"start errors":     testProgramsStartErrors,
				"events":           TestEventsReplayExitsUntilDelete,
				"signals to all":   TestSignalAllReachesEveryProcess,
				"host pids":        TestWithoutPIDNamespaceNothingSurvives,
				"exec":             TestExecStreams,
				"exec tree":        TestExecKillsTheWholeTree,
				"exec daemons":     TestExecLeavesDaemonsAlone,
				"exec terminal":    TestExecWithTerminal,
				"attach":           TestAttachedReaderGetsOutputAndASlowOneBlocksNobody,
				"last words":       TestTerminalKeepsLastWords,
				"terminal":         TestTerminalSurvivesTheShim,
				"out of memory":    TestOOMKillIsReported,
				"stats and update": TestStatsAndUpdate,
				"killed shim":      TestKilledShimLosesNothing,
				"adopted exits":    TestAdoptedContainerExits,
				"unseen ends":      TestEndWithoutShimIsUnknown,
				"killed anywhere":  TestKilledAtAnyMoment,
				"upgrades":         TestUpgradesLoseNothing,
				"upgraded exits":   TestEndsDuringUpgrade,
				"leaves nothing":   testProgramsLeaveNothing,
			} {
				t.Run(name, test)
			}
		})
	}
}

func testProgramsStartErrors(t *testing.T) {
	n := newNode(t)
	for name, tc := range map[string]struct {
		change func(*specs.Spec)
		reason string
		text   string
	}{
		"not-in-path":    {func(s *specs.Spec) { s.Process.Args = []string{"nothere"} }, shim.CommandNotFound, "nothere"},
		"no-such-file":   {func(s *specs.Spec) { s.Process.Args = []string{"/bin/nothere"} }, shim.CommandNotFound, "/bin/nothere"},
		"not-executable": {func(s *specs.Spec) { s.Process.Args = []string{"/text"} }, shim.PermissionDenied, ""},
		"no-mount":       {func(s *specs.Spec) { s.Mounts[1].Type = "nofs" }, shim.StartFailed, "mount"},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.bundle(name, tc.change, "true")
			if err := os.WriteFile(filepath.Join(n.dir, "image", "text"), []byte("no program"), 0o600); err != nil {
				t.Fatal(err)
			}
			mustNotCreate(t, n, r, tc.reason, tc.text)
		})
	}
}

// Nothing that passes between shim and program stays, whatever the command was and
// whether it worked.
func testProgramsLeaveNothing(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "init")
	r.TTY = true
	n.start(r)
	if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("true"), TTY: true, Stdout: &buffer{}}); err != nil {
		t.Fatal(err)
	}
	gone := process("true")
	gone.Args = []string{"nothere"}
	if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: gone}); err == nil {
		t.Error("a command that is not there was run")
	}
	if err := n.Update(n.ctx, "a", &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(64 << 20))}}); err != nil {
		t.Error(err)
	}
	for _, pattern := range []string{"tty*", "runc-process*", "containers/a/call-*"} {
		if left, err := filepath.Glob(filepath.Join(n.run, pattern)); err != nil || len(left) > 0 {
			t.Errorf("%s: left %q, %v", pattern, left, err)
		}
	}
	if err := n.Delete(n.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(n.run, "containers")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
