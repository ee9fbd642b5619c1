package manifest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Any input ends in objects or problems, in bounded work: no panic, no hang, one
// line a problem, lines that exist, and the same result each time.
func FuzzDecode(f *testing.F) {
	for _, folder := range []string{"good", "bad"} {
		for _, data := range manifests(f, folder) {
			if len(data) < 8<<10 {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, problems := Decode("f.yaml", data)
		lines := strings.Count(string(data), "\n") + 1
		for _, p := range problems {
			if p.Line < 0 || p.Line > lines {
				t.Errorf("line %d of %d: %v", p.Line, lines, p)
			}
			if text := p.String(); strings.ContainsAny(text, "\n\r\x1b") {
				t.Errorf("more than one line: %q", text)
			}
			if p.Message == "" {
				t.Errorf("no message: %+v", p)
			}
		}
		if len(set.Pods)+len(set.ConfigMaps)+len(set.Secrets) == 0 && len(problems) == 0 {
			t.Error("neither objects nor problems")
		}
		for _, pod := range set.Pods {
			if pod.Name == "" || pod.Namespace == "" || len(pod.Spec.Containers) == 0 {
				t.Errorf("a pod without name, namespace or containers: %+v", pod)
			}
		}
		if _, again := Decode("f.yaml", data); cmp.Diff(problems, again) != "" {
			t.Errorf("two answers: %s", cmp.Diff(problems, again))
		}
	})
}

// What our decoder accepts, upstream's accepts, with the same result.
func FuzzDecodingIsUpstreams(f *testing.F) {
	for _, data := range manifests(f, "good") {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameAsUpstream(t, "f.yaml", data) })
}

// Inputs made to be expensive end soon; a hang fails by the test's time limit.
func TestExpensiveInputs(t *testing.T) {
	const size = 256 << 10 // a twelfth of what is allowed keeps the test short
	fill := func(head, unit string) string {
		return head + strings.Repeat(unit, (size-len(head))/len(unit))
	}
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
	several := func(head string, number func(i int) string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; b.Len() < size; i++ {
			b.WriteString(number(i))
		}
		return b.String()
	}
	inputs := map[string]string{
		"open brackets":      fill("", "["),
		"open braces":        fill("", "{a: "),
		"nested dashes":      fill("", "- "),
		"question marks":     fill("", "? "),
		"exclamation marks":  fill("a: ", "!"),
		"anchors":            several("", func(i int) string { return fmt.Sprintf("a%d: &a%d x\n", i, i) }),
		"one long word":      fill("a: ", "x"),
		"many lines of text": fill("a: x\n", " y\n"),
		"many comments":      fill("a: x\n", "# c\n"),
		"escapes":            fill("a: \"", `\n`),
		"backslashes":        fill("a: \"", "\\"),
		"empty containers":   fill(pod+"spec: {containers: [{}", ",{}") + "]}\n",
		"empty ports":        fill(pod+"spec: {containers: [{ports: [{}", ",{}") + "]}]}\n",
		"many containers":    pod + "spec: {containers: [{}" + strings.Repeat(",{}", maxItems-100) + "]}\n",
		"many volumes":       pod + "spec: {containers: [{name: a, image: b, volumeMounts: [{}" + strings.Repeat(",{name: a, mountPath: /a}", maxItems/2-100) + "]}], volumes: [{}" + strings.Repeat(",{name: a, emptyDir: {}}", maxItems/2-100) + "]}\n",
		"many variables":     pod + "spec: {containers: [{name: a, image: b, env: [{}" + strings.Repeat(",{name: A, value: $(A)}", maxItems/2-100) + "], ports: [{}" + strings.Repeat(",{containerPort: 8, hostPort: 8}", maxItems/2-100) + "]}]}\n",
		"bad labels":         several(pod+"spec: {}\nlabels: {}\n---\n"+strings.Replace(pod, "{name: a}", "\n  name: a\n  labels:", 1), func(i int) string { return fmt.Sprintf("    %d*: '*'\n", i) }),
		"fewer bad labels":   several(strings.Replace(pod, "{name: a}", "\n  name: a\n  labels:", 1), func(i int) string { return fmt.Sprintf("    %d*: '%s'\n", i, strings.Repeat("*", 60)) }),
		"unknown fields":     several(pod+"spec:\n", func(i int) string { return fmt.Sprintf("  contain%d: 1\n", i) }),
		"wrong items":        fill("apiVersion: v1\nkind: List\nitems: [5", ",5") + "]\n",
		"JSON brackets":      fill("", `{"a":[`),
		"JSON values":        strings.Repeat("{}\n", size),
		"documents":          strings.Repeat("---\na\n", size),
		"merges":             fill("a: &a {a: 1, b: 2, c: 3}\nb:\n", "- <<: *a\n"),
		"aliased text":       "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 100_000) + "]\n",
	}
	for name, data := range inputs {
		start := time.Now()
		_, problems := Decode("f.yaml", []byte(data))
		took := time.Since(start)
		if len(problems) == 0 || len(problems) > maxProblems+1 {
			t.Errorf("%s: %d problems", name, len(problems))
			continue
		}
		t.Logf("%-20s %8v  %.150s", name, took.Round(time.Millisecond), problems[len(problems)-1])
	}
}
