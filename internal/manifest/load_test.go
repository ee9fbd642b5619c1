package manifest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree writes files below a new folder and goes there, so that messages have
// short names.
func tree(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n"
}

func names(set Set) string {
	var all []string
	for _, m := range set.ConfigMaps {
		all = append(all, m.Name)
	}
	return strings.Join(all, " ")
}

func TestLoad(t *testing.T) {
	tree(t, map[string]string{
		"d/b.yaml": configMap("b"), "d/a.yml": configMap("a"), "d/c.json": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`,
		"d/.hidden.yaml": "broken: [", "d/a.yml~": "broken: [", "d/#b.yaml#": "broken: [", "d/b.yaml.swp": "broken: [",
		"d/notes.txt": "broken: [", "d/below/x.yaml": "broken: [",
		"empty/readme.md": "", "blank.yaml": "# nothing\n", "zero.yaml": "", "blanks/a.yaml": "# nothing\n", "blanks/b.yaml": configMap("b"),
		"one.yaml": configMap("one"), "two.yaml": "# second\n" + configMap("one"), "bad.yaml": "kind: Job\napiVersion: batch/v1\n",
		"links/real": configMap("linked"),
	})
	for link, to := range map[string]string{"links/l.yaml": "real", "links/gone.yaml": "none"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct{ paths, stdin, names, problems string }{
		"a folder is read in the order of names":    {"d", "", "a b c", ""},
		"a file named twice is read once":           {"d d/b.yaml ./d/b.yaml", "", "a b c", ""},
		"standard input":                            {"one.yaml -", configMap("in"), "one in", ""},
		"standard input has a name":                 {"-", "kind: Pod\n", "", "<stdin>:1: apiVersion: is missing (write apiVersion: v1)\n<stdin>:1: metadata.name: is missing (write metadata: name: …)\n<stdin>:1: spec.containers: is missing (a pod needs at least one container)"},
		"standard input twice":                      {"- -", configMap("in"), "in", "<stdin>: is named twice (write - once)"},
		"empty standard input":                      {"-", "", "", "<stdin>: is empty (write a Pod, ConfigMap or Secret)"},
		"a missing file":                            {"ome.yaml", "", "", "ome.yaml: there is no such file (did you mean one.yaml?)"},
		"a missing folder":                          {"none/one.yaml", "", "", "none/one.yaml: there is no such file (the folder is missing too)"},
		"a folder without manifests":                {"empty", "", "", "empty: the folder holds no *.yaml, *.yml or *.json file (folders below it are not read)"},
		"an empty file":                             {"zero.yaml blank.yaml", "", "", "zero.yaml: is empty (write a Pod, ConfigMap or Secret)\nblank.yaml: holds no object (write a Pod, ConfigMap or Secret)"},
		"an empty file in a folder is only odd":     {"blanks", "", "b", "blanks/a.yaml: warning: holds no object"},
		"links are followed, lost ones reported":    {"links", "", "linked", "links/gone.yaml: is a link to a file that is not there"},
		"an address":                                {"https://example.com/a.yaml", "", "", "https://example.com/a.yaml: is an address, not a file (write curl -fsSL https://example.com/a.yaml | berth run -)"},
		"one name in two files":                     {"one.yaml two.yaml", "", "one", "two.yaml:5: metadata.name: the ConfigMap default/one is already declared at one.yaml:4 (rename one of the two or remove it)"},
		"problems of all files come in their order": {"ome.yaml bad.yaml one.yaml", "", "one", "ome.yaml: there is no such file (did you mean one.yaml?)\nbad.yaml:1: kind: berth runs Pod, ConfigMap and Secret, not Job (take the pod template of the Job, spec.template, and make it a Pod)"},
		"no path at all":                            {"", "", "", "berth: no manifest is named (name a file, a folder, or - for standard input)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			set, problems := Load(strings.Fields(test.paths), Options{Stdin: strings.NewReader(test.stdin)})
			if diff := cmp.Diff(test.problems, problems.Error()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if got := names(set); got != test.names {
				t.Errorf("objects %q, want %q", got, test.names)
			}
		})
	}
}

// An empty List is no object, however it is written; beside others it is odd.
func TestEmptyLists(t *testing.T) {
	const list = "apiVersion: v1\nkind: "
	for text, line := range map[string]string{
		list + "List\nitems: []\n": "3", list + "List\nitems:\n": "3", list + "List\n": "1", list + "PodList\nitems: []\n": "3",
		`{"apiVersion": "v1", "kind": "List", "items": []}`: "1",
	} {
		kind := strings.TrimSpace(regexp.MustCompile(`\w*List`).FindString(text))
		warning := ":" + line + ": warning: items: the " + kind + " is empty"
		tree(t, map[string]string{"a.yaml": text, "both/a.yaml": text, "both/b.yaml": configMap("b"), "more.yaml": configMap("c") + "---\n" + text})
		_, problems := Load([]string{"a.yaml"}, Options{})
		want := "a.yaml: holds no object (write a Pod, ConfigMap or Secret)\na.yaml" + warning
		if diff := cmp.Diff(want, problems.Error()); diff != "" {
			t.Errorf("%q alone (-want +got):\n%s", text, diff)
		}
		for _, path := range []string{"both", "more.yaml"} {
			set, problems := Load([]string{path}, Options{})
			if problems.Err() != nil || len(set.ConfigMaps) != 1 || !strings.Contains(problems.Error(), "warning: items: the "+kind+" is empty") {
				t.Errorf("%q beside another object, %s: %v", text, path, problems)
			}
		}
	}
}

func TestUnreadableFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	tree(t, map[string]string{"a.yaml": configMap("a")})
	if err := os.Chmod("a.yaml", 0); err != nil {
		t.Fatal(err)
	}
	_, problems := Load([]string{"a.yaml"}, Options{})
	if got := problems.Error(); got != "a.yaml: cannot read: permission denied (see ls -l)" {
		t.Error(got)
	}
}

// As with berth run <(helm template …).
func TestNamedPipe(t *testing.T) {
	tree(t, nil)
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile("pipe", []byte(configMap("piped")), 0) }()
	set, problems := Load([]string{"pipe"}, Options{})
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if len(problems) > 0 || names(set) != "piped" {
		t.Errorf("%q, %v", names(set), problems)
	}
}

func TestEndlessInput(t *testing.T) {
	_, problems := Load([]string{"/dev/zero"}, Options{})
	if got := problems.Error(); got != "/dev/zero: the file is larger than 16 MiB (split it)" {
		t.Error(got)
	}
}

func TestOnlyWideTextIsCalledWide(t *testing.T) {
	for text, want := range map[string]string{
		"\x00\x00\x00abc":                     "NUL byte",
		"a\x00bc: x\n":                        "NUL byte",
		"\x00\x00\x00\x00\x00\x00\x00\x00":    "NUL byte",
		"k\x00i\x00n\x00d\x00:\x00 \x00x\x00": "UTF-16",
		"\x00k\x00i\x00n\x00d\x00:\x00 \x00x": "UTF-16",
		"k\x00\x00\x00i\x00\x00\x00":          "UTF-32",
	} {
		if _, p := checkText([]byte(text)); p == nil || !strings.Contains(p.Message, want) {
			t.Errorf("%q: %v, want %s", text, p, want)
		}
	}
}
