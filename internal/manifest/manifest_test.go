package manifest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/pod-spec.md")

// golden compares got with a file, or rewrites the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update rewrites it:\n%s", path, diff)
	}
}

// Each bad manifest gives exactly the messages that someone once read and found
// good.
func TestBadManifestsSayWhatToDo(t *testing.T) {
	entries, err := os.ReadDir("testdata/bad")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join("testdata/bad", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		_, problems := Decode(e.Name(), data)
		if len(problems) == 0 {
			t.Errorf("%s: no problem was found", e.Name())
		}
		for _, p := range problems {
			if strings.ContainsAny(p.String(), "\n\r\t") {
				t.Errorf("%s: more than one line: %q", e.Name(), p.String())
			}
		}
		b.WriteString(problems.Error() + "\n\n")
	}
	golden(t, "testdata/bad.golden", b.String())
}

// manifests reads a folder of testdata.
func manifests(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("testdata", folder))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join("testdata", folder, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestGoodManifestsHaveNoProblems(t *testing.T) {
	for name, data := range manifests(t, "good") {
		set, problems := Decode(name, data)
		if len(problems) > 0 {
			t.Errorf("%v", problems)
		}
		if len(set.Pods) == 0 {
			t.Errorf("%s: no pods", name)
		}
		for _, pod := range set.Pods {
			if pod.Namespace == "" || pod.Name == "" || pod.Spec.TerminationGracePeriodSeconds == nil || pod.Kind != "Pod" {
				t.Errorf("%s: the pod %s lacks its defaults", name, pod.Name)
			}
			if o, ok := set.Origin(pod); !ok || o.File != name || o.Line < 1 {
				t.Errorf("%s: the origin of the pod %s is %+v", name, pod.Name, o)
			}
		}
	}
}

// What passes our decoder means what it means to Kubernetes' own.
func TestDecodingIsUpstreams(t *testing.T) {
	checked := 0
	for _, folder := range []string{"good", "bad"} {
		for name, data := range manifests(t, folder) {
			checked += sameAsUpstream(t, name, data)
		}
	}
	if checked < 40 {
		t.Errorf("only %d documents were compared", checked)
	}
}

// sameAsUpstream decodes each document that holds one pod, ConfigMap or Secret
// with both decoders, and compares what comes out before any default.
func sameAsUpstream(t *testing.T, name string, data []byte) (compared int) {
	data, bad := checkText(data)
	if bad != nil {
		return 0
	}
	for _, doc := range splitYAML(data) {
		clean := true
		root, ok := parseYAML(doc, func(Problem) { clean = false })
		if !ok || !clean || root.kind != mapNode {
			continue
		}
		var ours, theirs any
		switch root.textOf("kind") {
		case kindPod:
			ours, theirs = &corev1.Pod{}, &corev1.Pod{}
		case kindConfigMap:
			ours, theirs = &corev1.ConfigMap{}, &corev1.ConfigMap{}
		case kindSecret:
			ours, theirs = &corev1.Secret{}, &corev1.Secret{}
		default:
			continue
		}
		d := &decoder{full: func() bool { return false }, moved: func(string) {}, report: func(int, *field.Path, Rule, string, string) { clean = false }}
		d.value(root, reflect.ValueOf(ours).Elem(), nil)
		if !clean || root.field("status") != nil {
			continue
		}
		err := yaml.UnmarshalStrict(doc.data, theirs)
		if err != nil {
			t.Errorf("%s: upstream refuses what we accept: %v", name, err)
			continue
		}
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Errorf("%s: decoded otherwise than upstream (-theirs +ours):\n%s", name, diff)
		}
		compared++
	}
	return compared
}

func TestSecretTextBecomesData(t *testing.T) {
	set, _ := Decode("hello.yaml", manifests(t, "good")["hello.yaml"])
	want := map[string][]byte{"password": []byte("hunter2"), "user": []byte("admin")}
	if diff := cmp.Diff(want, set.Secrets[0].Data); diff != "" || set.Secrets[0].StringData != nil {
		t.Error(diff, set.Secrets[0].StringData)
	}
	if got := *set.Pods[0].Spec.Volumes[0].ConfigMap.DefaultMode; got != 0o440 {
		t.Errorf("the mode 0440 became %04o", got)
	}
}

func TestNoValueOfASecretIsPrinted(t *testing.T) {
	for _, text := range []string{
		"data: hunter2", "data: {a: hunter2}", "data: {a: [hunter2]}", "stringData: hunter2", "data:\n  a: !!int hunter2",
		"type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: hunter2}", "data: [hunter2]", "immutable: hunter2",
		"data: {a: 1232}\nstringData: {b: 1232}",
	} {
		_, problems := Decode("s.yaml", []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"+text+"\n"))
		if len(problems) == 0 || strings.Contains(problems.Error(), "hunter2") || strings.Contains(problems.Error(), "1232") {
			t.Errorf("%s: %v", text, problems)
		}
	}
}

func TestGeneratedNameDependsOnContentOnly(t *testing.T) {
	name := func(text string) string {
		set, problems := Decode("a.yaml", []byte(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return set.Pods[0].Name
	}
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: job-}\nspec: {containers: [{name: app, image: busybox}]}\n"
	first := name(text)
	if again := name("# a comment\n---\n" + text); again != first {
		t.Errorf("the same manifest is %s and %s", first, again)
	}
	if other := name(strings.Replace(text, "busybox", "alpine", 1)); other == first {
		t.Errorf("another manifest is %s too", other)
	}
	if len(first) != len("job-")+5 {
		t.Errorf("the name is %s", first)
	}
	if long := name(strings.Replace(text, "job-", strings.Repeat("j", 100), 1)); len(long) != 63 {
		t.Errorf("the long name is %s", long)
	}
}

func TestOnlyObjectsWithoutErrorsAreInTheSet(t *testing.T) {
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndatum: {}\n"
	set, problems := Decode("a.yaml", []byte(text))
	if len(set.ConfigMaps) != 1 || set.ConfigMaps[0].Name != "a" || problems.Err() == nil {
		t.Errorf("%d ConfigMaps, %v", len(set.ConfigMaps), problems)
	}
}

func TestWarningsAloneAreNoError(t *testing.T) {
	set, problems := Decode("a.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {nodeName: here, containers: [{name: app, image: busybox}]}\n"))
	if err := problems.Err(); err != nil || len(set.Pods) != 1 || len(problems.Warnings()) != 1 {
		t.Errorf("%v, %d pods, %v", err, len(set.Pods), problems)
	}
}

func TestManyProblemsAreCut(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n")
	for i := range 2 * maxProblems {
		fmt.Fprintf(&b, "  k%d: 5\n", i)
	}
	_, problems := Decode("a.yaml", []byte(b.String()))
	if last := problems[len(problems)-1]; last.Severity != Error || len(problems) != maxProblems+1 || !strings.Contains(last.Message, "1000 more") {
		t.Errorf("%d problems, the last: %v", len(problems), last)
	}
}

// What begins as JSON does is told what is wrong with it as JSON, whatever the file's
// name, and where; other flow style is YAML.
func TestBrokenJSON(t *testing.T) {
	const hint = " (look for a missing comma, a trailing comma or an unquoted key)"
	for text, want := range map[string]string{
		"{\n  \"kind\": \"Pod\"\n  \"a\": 1\n}":                    "3: not JSON at column 3: invalid character '\"' after object key:value pair" + hint,
		"{\"kind\": \"é\" \"a\": 1}":                               "1: not JSON at column 14: invalid character '\"' after object key:value pair" + hint,
		"\n[{\"a\": [\"x\" \"y\"]}]":                               "2: not JSON at column 13: invalid character '\"' after array element" + hint,
		"{\"a\": tru}":                                             "",
		"{\"a\": \"\\x\"":                                          "1: not JSON at column 9: invalid character 'x' in string escape code" + hint,
		"{\"a\": {{ .Values.x }}, \"b\": [}":                       "1: not JSON at column 8: invalid character '{' (this looks like a template: render it first, for example with helm template)",
		"{\"a\": 1":                                                "1: the JSON ends in the middle of a value (close its braces, brackets and quotes)",
		"# first\n---\n{\"kind\": \"Pod\",\n \"a\" 1}":             "4: not JSON at column 6: invalid character '1' after object key" + hint,
		"{\"a\": 1}\n--- {\"kind\": \"Pod\" 2}":                    "2: not JSON at column 20: invalid character '2' after object key:value pair" + hint,
		"{\"kind\": \"Pod\"}\n{\"kind\": \"Pod\",,}":               "2: not JSON at column 16: invalid character ',' looking for beginning of object key string" + hint,
		"{kind: Pod, metadata: {name: a}":                          "1: not YAML: a { … } mapping is not closed (close it with })",
		"{{ .Values.all":                                           "1: not YAML: this looks like a template (render it first, for example with helm template, or quote the value)",
		"{\"kind\": \"Pod\", \"apiVersion\": \"v1\", # comment\n}": "",
	} {
		_, problems := Decode("a.yaml", []byte(text))
		syntax := slices.DeleteFunc(problems, func(p Problem) bool { return p.Rule != RuleSyntax })
		if want != "" {
			want = "a.yaml:" + want
		}
		if diff := cmp.Diff(want, syntax.Error()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestSizeLimits(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	big := head + "# " + strings.Repeat("x", MaxDocumentBytes) + "\n"
	for name, data := range map[string]string{
		"2: the document is larger than 3 MiB":    "# first\n---\n" + big,
		"b.yaml: the file is larger than 16 MiB":  strings.Repeat(big, 6),
		"1: values are nested more than 100 deep": "{" + strings.Repeat(`"a":{`, 5000),
	} {
		start := time.Now()
		_, problems := Decode("b.yaml", []byte(data))
		if len(problems) != 1 || !strings.Contains(problems.Error(), name) {
			t.Errorf("want %q, got %v", name, problems)
		}
		t.Logf("%s after %v", name, time.Since(start))
	}
}

func TestMissingReferences(t *testing.T) {
	set, _ := Decode("hello.yaml", manifests(t, "good")["hello.yaml"])
	if problems := set.MissingReferences(); len(problems) > 0 {
		t.Errorf("all is there, but %v", problems)
	}
	set.ConfigMaps, set.Secrets = nil, nil
	want := []string{
		"hello.yaml:36: warning: spec.containers[0].envFrom[0].configMapRef.name: the ConfigMap default/settings is not in these manifests (the pod waits until it is there; add it, or write optional: true)",
		"hello.yaml:61: warning: spec.volumes[2].projected.sources[0].secret.name: the Secret default/keys is not in these manifests (the pod waits until it is there; add it, or write optional: true)",
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), set.MissingReferences().Error()); diff != "" {
		t.Error(diff)
	}
}

// A key that a ConfigMap or Secret of the same file does not have is warned of like
// one that is not there at all.
func TestMissingKeys(t *testing.T) {
	set, problems := Decode("a.yaml", []byte(`apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
binaryData: {shape: eA==}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {token: x}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: bare}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: main
    image: berth.local/demo:latest
    env:
    - {name: A, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
    - {name: B, valueFrom: {configMapKeyRef: {name: settings, key: shape}}}
    - {name: C, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
    - {name: D, valueFrom: {configMapKeyRef: {name: settings, key: color, optional: true}}}
    - {name: E, valueFrom: {secretKeyRef: {name: keys, key: token}}}
    - {name: F, valueFrom: {secretKeyRef: {name: keys, key: tokens}}}
  volumes:
  - {name: v, configMap: {name: bare, items: [{key: k, path: p}]}}
  - name: w
    projected:
      sources:
      - {secret: {name: keys, items: [{key: token, path: p}, {key: none, path: q}]}}
`))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`a.yaml:26: warning: spec.containers[0].env[2].valueFrom.configMapKeyRef.key: the ConfigMap default/settings in these manifests has no key "color" (the pod waits until it has; it has colour, shape)`,
		`a.yaml:29: warning: spec.containers[0].env[5].valueFrom.secretKeyRef.key: the Secret default/keys in these manifests has no key "tokens" (the pod waits until it has; it has token)`,
		`a.yaml:31: warning: spec.volumes[0].configMap.items[0].key: the ConfigMap default/bare in these manifests has no key "k" (the pod waits until it has; it has none)`,
		`a.yaml:35: warning: spec.volumes[1].projected.sources[0].secret.items[1].key: the Secret default/keys in these manifests has no key "none" (the pod waits until it has; it has token)`,
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), set.MissingReferences().Error()); diff != "" {
		t.Error(diff)
	}
}

func TestTooMuchData(t *testing.T) {
	for _, name := range []string{"data", "binaryData"} {
		_, problems := Decode("a.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"+name+":\n  a: "+strings.Repeat("eHh4", 400_000)+"\n"))
		if want := "a.yaml:4: " + name + ": is too long: may not be more than 1048576 bytes"; problems.Error() != want {
			t.Errorf("got %s\nwant %s", problems.Error(), want)
		}
	}
}

func TestLocate(t *testing.T) {
	root, ok := parseYAML(document{data: []byte("a:\n  b:\n  - c: 1\n  - d:\n      x.y: 1\n      x.y]z: 2\n      e: 3\n")}, func(Problem) {})
	if !ok {
		t.Fatal("the document is good")
	}
	for path, want := range map[string]int{
		"": 1, "a": 1, "a.b": 2, "a.b[0]": 3, "a.b[0].c": 3, "a.b[1].d": 4, "a.b[1].d[x.y]": 5, "a.b[1].d[x.y]z]": 6,
		"a.b[1].d.e": 7, "a.b[1].d[none]": 4, "a.b[7].c": 2, "a.none.c": 1, "a.b[x]": 2, "none": 1, "a.b[": 2,
	} {
		if got := locate(root, path); got != want {
			t.Errorf("%s is on line %d, want %d", path, got, want)
		}
	}
}

// What an API server adds to a pod on create is there.
func TestDefaultsAreTheAPIServers(t *testing.T) {
	set, problems := Decode("a.yaml", []byte(`apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  resources: {limits: {cpu: "2", memory: 1Gi}}
  containers:
  - name: app
    image: busybox:latest
    resources: {requests: {cpu: 250m}, limits: {memory: 64Mi}}
    securityContext: {privileged: true}
    readinessProbe: {httpGet: {port: 80}}
    ports: [{containerPort: 80}]
  volumes:
  - {name: c, configMap: {name: c}}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	spec := set.Pods[0].Spec
	app := spec.Containers[0]
	got := fmt.Sprint(spec.RestartPolicy, " ", *spec.TerminationGracePeriodSeconds, " ", spec.DNSPolicy, " ", app.ImagePullPolicy, " ",
		app.TerminationMessagePath, " ", app.Ports[0].Protocol, " ", app.ReadinessProbe.HTTPGet.Path, " ", app.ReadinessProbe.PeriodSeconds, " ",
		*spec.Volumes[0].ConfigMap.DefaultMode, " ", app.Resources.Requests.Memory(), " ", spec.Resources.Requests.Cpu(), " ", spec.Resources.Requests.Memory())
	const want = "Always 30 ClusterFirst Always /dev/termination-log TCP / 10 420 64Mi 250m 64Mi"
	if got != want {
		t.Errorf("defaults %q, want %q", got, want)
	}
}

func TestStatusAndLeftoversOfAClusterAreDropped(t *testing.T) {
	set, problems := Decode("a.yaml", []byte(strings.Replace(string(manifests(t, "bad")["exported.yaml"]), "      - serviceAccountToken: {path: token}\n", "", 1)))
	if problems.Err() != nil || len(set.Pods) != 1 {
		t.Fatal(problems)
	}
	want := metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "0b7c2f0e-36ba-4c2f-8f0e-1d5f3f9b2a10"}
	if diff := cmp.Diff(want, set.Pods[0].ObjectMeta); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(corev1.PodStatus{}, set.Pods[0].Status); diff != "" {
		t.Error(diff)
	}
}
