package cli

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// call runs a command in this process; only for those that need no agent.
func call(args ...string) (out string, code int) {
	var b bytes.Buffer
	code = Main(args, strings.NewReader(""), &b, &b)
	return b.String(), code
}

func TestWrongCommandLines(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: others are told that first")
	}
	for line, want := range map[string]string{
		"nope":                            `there is no command "nope"`,
		"run":                             "say which file: berth run FILE...",
		"exec web":                        "say which pod, and what to run in it: berth exec POD",
		"logs a b":                        "one pod at a time, not a b",
		"image frob":                      "there is no command image frob",
		"run --frob x":                    "unknown flag: --frob",
		"run --until never x":             `--until is "never", want ready or done`,
		"run --timeout 0 x":               "--timeout is 0",
		"run --timeout 5 x":               `--timeout is "5", want a time such as 5s`,
		"run --timeout 1.5 x":             `--timeout is "1.5", want a time such as 1.5s`,
		"run --timeout soon x":            `--timeout is "soon", want a time such as 90s`,
		"stop --grace 5 web":              `--grace is "5", want a time such as 5s`,
		"rm --grace 5 web":                `--grace is "5", want a time such as 5s`,
		"logs --since 5 web":              `--since is "5", want a time such as 5s`,
		"run -d --until done x":           "--detach does not wait, --until done does",
		"run -d --timeout 5s x":           "--timeout has nothing to wait for",
		"run -o xml x":                    `-o is "xml", want auto, live, plain or json`,
		"run -o live x":                   "-o live needs a terminal",
		"ps -o xml":                       `-o is "xml"`,
		"stop":                            "say which pods, or --all",
		"rm --all web":                    "--all means all pods",
		"stop --grace=-1s web":            "--grace is -1s",
		"logs web -f --previous":          "there is nothing to follow",
		"--log-level loud version":        `--log-level is "loud"`,
		"--network-cidr 1.2.3.4 version":  "want a range such as",
		"--network-cidr 10.1.2.3/8 ps":    "unlike 10.0.0.0/8; choose another",
		"--network-cidr fd00::/64 ps":     "it is not IPv4",
		"--network-cidr 127.0.0.0/8 ps":   "it is reserved",
		"--network-cidr 10.1.0.0/16,x ps": "want a range such as",
		"--pod-pids-limit=-2 ps":          "--pod-pids-limit is -2",
		"--pod-pids-limit many ps":        "--pod-pids-limit",
		"completion tcsh":                 "invalid argument",
	} {
		out, code := call(strings.Fields(line)...)
		if code != exitUsage || !strings.Contains(out, want) || !strings.HasPrefix(out, "berth: ") {
			t.Errorf("berth %s ends with %d: %s", line, code, out)
		}
	}
}

func TestManifestsWithoutPodsAreToldWhatIsMissing(t *testing.T) {
	for text, want := range map[string]string{
		"kind: ConfigMap": "name the files of pods that use what is in there as well",
		"kind: Secret":    "name the files of pods that use what is in there as well",
	} {
		in := strings.NewReader("apiVersion: v1\n" + text + "\nmetadata: {name: web}\n")
		_, err := (&app{in: in, err: io.Discard}).load([]string{"-"})
		if err == nil || !strings.Contains(err.Error(), "no pod is in what came on standard input; "+want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestOthersAreToldTheWholeCommand(t *testing.T) {
	for line, want := range map[string]string{
		"image ls": "berth image ls needs root (it makes namespaces, mounts, cgroups and networks) and runs as uid 5: try sudo berth image ls",
		"run":      "berth run needs root (it makes namespaces, mounts, cgroups and networks) and runs as uid 5: try sudo berth run FILE...",
	} {
		cmd, _, err := newRoot(&app{}).Find(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		if got := notRoot(cmd, 5).Error(); got != want {
			t.Errorf("berth %s: %s", line, got)
		}
	}
}

func TestEachCommandExplainsItself(t *testing.T) {
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			each(sub)
		}
		if c.Hidden || !c.HasParent() {
			return
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short is %q", c.CommandPath(), c.Short)
		}
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		out, code := call(args...)
		if code != 0 || !strings.Contains(out, "Usage:") {
			t.Errorf("%s: %d, %s", strings.Join(args, " "), code, out)
		}
	}
	each(newRoot(&app{}))
	if out, _ := call("--help"); strings.Contains(out, "Additional Commands") {
		t.Errorf("commands without a group:\n%s", out)
	}
}

func TestValidateNamesEachProblem(t *testing.T) {
	path := t.TempDir() + "/bad.yaml"
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: a, image: a, prots: []}\n  restartPolicy: Sometimes\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := call("validate", path)
	if code != exitUsage || !strings.Contains(out, path+":6:") || !strings.Contains(out, path+":7:") {
		t.Errorf("it ends with %d:\n%s", code, out)
	}
}

// Editors jump to what is said as FILE:LINE: at the beginning of a line.
func TestProblemsBeginWithTheirPlace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: berth run tells others that first")
	}
	path := t.TempDir() + "/bad.yaml"
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  nodeName: here\n  containers:\n  - {name: a, image: a, prots: []}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const odd, wrong = ":5: warning: spec.nodeName: has no effect", ":7: spec.containers[0].prots: there is no such field"
	for _, command := range []string{"validate", "run"} {
		out, code := call(command, "--root", t.TempDir(), path)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != exitUsage || len(lines) != 2 || !strings.HasPrefix(lines[0], path+odd) || !strings.HasPrefix(lines[1], path+wrong) {
			t.Errorf("berth %s ends with %d:\n%s", command, code, out)
		}
	}
}

func TestHelpAndVersionAreFoundTheUsualWays(t *testing.T) {
	version, _ := call("version")
	for line, want := range map[string]string{
		"--version":       version,
		"help":            "berth runs Kubernetes Pods",
		"help run":        "berth run FILE...",
		"help image pull": "berth image pull",
	} {
		if out, code := call(strings.Fields(line)...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("berth %s ends with %d: %s", line, code, out)
		}
	}
	if out, code := call("help", "nope"); code != exitUsage || !strings.Contains(out, `there is no command "nope"`) {
		t.Errorf("berth help nope ends with %d: %s", code, out)
	}
}
