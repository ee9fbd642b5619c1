package integration

import (
	"strings"
	"testing"
)

// Variables come from a file that an init container writes.
func TestVariablesComeFromAFile(t *testing.T) {
	t.Parallel()
	const pod = `
initContainers:
- name: writes
  image: demo
  args: [write, /e/dir/env, "# settings\nA='one two'\nB='$(A)'"]
  volumeMounts: [{name: e, mountPath: /e/dir}]
volumes: [{name: e, emptyDir: {}}]`
	const container = `
args: [env, A, B, C]
env:
- {name: A, valueFrom: {fileKeyRef: {volumeName: e, path: env, key: A}}}
- {name: B, valueFrom: {fileKeyRef: {volumeName: e, path: env, key: B}}}
- {name: C, value: "<$(A)>"}
- {name: D, valueFrom: {fileKeyRef: {volumeName: e, path: env, key: D, optional: true}}}
- {name: E, valueFrom: {fileKeyRef: {volumeName: e, path: none, key: A, optional: true}}}`
	if out := inside(t, "env-file", container, pod); out != "one two\n$(A)\n<one two>\n" {
		t.Errorf("got %q", out)
	}
	out := inside(t, "env-file-all", strings.Replace(container, "env, A, B, C", "env", 1), pod)
	if strings.Contains(out, "\nD=") || strings.Contains(out, "\nE=") {
		t.Errorf("optional variables that are nowhere are set: %q", out)
	}
}

func TestVariableThatIsInNoFile(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for name, c := range map[string]struct{ ref, says string }{
		"env-no-file": {"path: none, key: A", `file "none" not found in volume "e"`},
		"env-no-key":  {"path: env, key: Z", `key "Z" not found in file "env"`},
	} {
		p := n.run(t, onePod(name, "args: [serve]\nenv: [{name: X, valueFrom: {fileKeyRef: {volumeName: e, "+c.ref+"}}}]", `
initContainers:
- name: writes
  image: demo
  args: [write, /e/env, "A='1'"]
  volumeMounts: [{name: e, mountPath: /e}]
volumes: [{name: e, emptyDir: {}}]`))
		if message := p.reason(t, "app", "CreateContainerConfigError"); !strings.Contains(message, c.says) {
			t.Errorf("%s: the message is %q", name, message)
		}
		p.stop(t)
	}
}
