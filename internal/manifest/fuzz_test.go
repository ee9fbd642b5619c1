package manifest

import (
	"strings"
	"testing"

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
