package lifecycle

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// FuzzDecide decides and goes on from arbitrary histories and observations: no
// panic, no more work than there are things to work on, and steps that end.
func FuzzDecide(f *testing.F) {
	for _, in := range storyInputs(f) {
		pod, history, observed := toJSON(in.Pod), toJSON(in.History), toJSON(in.Observed)
		f.Add(pod, history, observed, int64(0), false)
		f.Add(pod, history, observed, int64(time.Hour), true)
	}
	f.Fuzz(func(t *testing.T, pod, history, observed string, later int64, stop bool) {
		in := Input{Pod: &corev1.Pod{}, Now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(later))}
		if json.Unmarshal([]byte(pod), in.Pod) != nil || json.Unmarshal([]byte(history), &in.History) != nil ||
			json.Unmarshal([]byte(observed), &in.Observed) != nil || !sane(in.Pod) {
			return
		}
		if stop {
			in.Stop = &Stop{Reason: "Evicted"}
		}
		in.History = in.History.Apply(Looked{Observed: in.Observed})
		d, h := Step(in)
		things := 4 + 2*len(in.Observed.Containers) + 2*len(in.Observed.Sandboxes) +
			len(in.Pod.Spec.InitContainers) + len(in.Pod.Spec.Containers) + len(in.Pod.Spec.EphemeralContainers)
		if len(d.Work) > things {
			t.Errorf("%d actions for %d things: %v", len(d.Work), things, d.Work)
		}
		if d.Finished && (len(d.Work) > 0 || len(in.Observed.Containers)+len(in.Observed.Sandboxes) > 0) {
			t.Errorf("finished, and something is left: %v", d.Work)
		}
		if !d.LookAgain.IsZero() && !d.LookAgain.After(in.Now) {
			t.Errorf("LookAgain %s is not to come", d.LookAgain)
		}
		for _, a := range d.Work {
			h = h.Apply(ActionStarted{Action: a, At: in.Now})
			h = h.Apply(ActionEnded{Action: a, At: in.Now, Err: &Failed{Reason: "Fuzzed"}})
		}
		h = h.Apply(ClockStepped{By: time.Duration(later)}).Apply(SourcesChanged{})
		in.History = h
		Step(in)
	})
}

// FuzzHistoryJSON reads arbitrary text as a history: what can be read is written
// and read back the same.
func FuzzHistoryJSON(f *testing.F) {
	for _, in := range storyInputs(f) {
		f.Add(toJSON(in.History))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var h History
		if json.Unmarshal([]byte(text), &h) != nil {
			return
		}
		b, err := json.Marshal(h)
		if err != nil {
			return // a time out of range was read
		}
		var back History
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("what was written is not read: %v\n%s", err, b)
		}
		again, err := json.Marshal(back)
		if err != nil {
			t.Fatal(err)
		}
		if string(again) != string(b) {
			t.Errorf("the history is another after a round trip:\n%s\n%s", b, again)
		}
	})
}

// Every field of a history is written: one that is left out is lost when the
// agent dies.
func TestHistoryIsWrittenWhole(t *testing.T) {
	var walk func(typ reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem(), path)
			return
		case reflect.Struct:
		default:
			return
		}
		if typ.PkgPath() != reflect.TypeFor[History]().PkgPath() {
			return
		}
		for i := range typ.NumField() {
			field := typ.Field(i)
			if tag := field.Tag.Get("json"); !field.IsExported() || tag == "" || tag == "-" {
				t.Errorf("%s.%s is not written", path, field.Name)
			}
			walk(field.Type, path+"."+field.Name)
		}
	}
	walk(reflect.TypeFor[History](), "History")
}

// storyInputs are the inputs at the ends of all stories.
func storyInputs(f *testing.F) []Input {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	var all []Input
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, s := range storiesOf(string(text)) {
			w := newScenarioWorld()
			w.unchecked = true
			for _, c := range s.commands {
				if c == "look" {
					w.look()
				} else if err := w.do(c); err != nil {
					f.Fatal(err)
				}
			}
			all = append(all, w.in)
		}
	}
	return all
}

// sane says that the pod could have come through validation, as far as the core
// relies on it: containers have names of their own.
func sane(pod *corev1.Pod) bool {
	seen := map[string]bool{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if c.Name == "" || seen[c.Name] {
				return false
			}
			seen[c.Name] = true
		}
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name == "" || seen[c.Name] {
			return false
		}
		seen[c.Name] = true
	}
	return len(pod.Spec.Containers) > 0
}
