package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/testutil/ociruntimes"
)

// byProgram counts the containers that an OCI runtime runs: each has a folder for
// what the runtime knows of it.
func (n *node) byProgram() int {
	n.t.Helper()
	found, err := filepath.Glob(filepath.Join(n.home().Shim(), "containers", "*", "state", "*"))
	if err != nil {
		n.t.Fatal(err)
	}
	return len(found)
}

// A pod's runtime class names a handler, if there is one of that name; agents that
// follow keep the handlers.
func TestARuntimeClassNamesAHandler(t *testing.T) {
	n := newNode(t)
	handlers := map[string]string{}
	for _, name := range ociruntimes.Names {
		path, err := ociruntimes.Find(t.TempDir(), name)
		if err != nil {
			t.Fatal(err)
		}
		handlers[name] = name + "=" + path
	}
	of := func(class, name string) string {
		return n.file(strings.Replace(pod(name, "Always", 1, "serve"), "spec:\n", "spec:\n  runtimeClassName: "+class+"\n", 1))
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if out, code := n.berth(args...); code != 2 || !strings.Contains(out, want) {
			t.Errorf("berth %q ends with %d: %s", args, code, out)
		}
	}
	none := "spec.runtimeClassName: is supported only if a --runtime-handler of berth has that name"
	refused(none, "run", of("runc", "one"))
	refused(none, "validate", of("runc", "one"))
	refused("is not an absolute path", "run", "--runtime-handler", "runc=runc", of("runc", "one"))
	n.must("validate", "--runtime-handler", handlers["runc"], of("runc", "one"))

	n.must("run", "--runtime-handler", handlers["runc"], "--runtime-handler", handlers["crun"], "--detach", "--until", "ready",
		of("runc", "one"), of("crun", "two"), n.file(pod("builtin", "Always", 1, "serve")))
	if got := n.byProgram(); got != 2 {
		t.Errorf("%d containers are run by programs, want 2", got)
	}
	if out := n.must("exec", "two", "--", "/berth-demo", "echo", "from inside"); !strings.Contains(out, "from inside") {
		t.Errorf("exec says %q", out)
	}
	refused("and the agent that runs", "run", "--runtime-handler", handlers["crun"], of("crun", "three"))
	refused(none, "run", of("kata", "three"))

	n.killAgent()
	n.must("ps")
	n.must("run", "--detach", "--until", "ready", of("runc", "three"))
	if got := n.byProgram(); got != 3 {
		t.Errorf("%d containers are run by programs, want 3", got)
	}
	n.killAgent()
	n.must("run", "--runtime-handler", "none", "--detach", "--until", "ready", n.file(pod("four", "Always", 1, "serve")))
	refused(none, "run", of("runc", "five"))
	n.must("rm", "--force", "--grace", "0s", "--all")
}
