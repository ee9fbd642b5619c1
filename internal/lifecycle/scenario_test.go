package lifecycle

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

var update = flag.Bool("update", false, "write what came of the scenarios into their files")

// Each file in testdata/scenarios tells stories: commands, and below a line of
// dashes what came of them. A story begins with its title, "# …", and a pod.
// The commands are those of scenarioWorld.do; the properties of decisions are
// checked at every step.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	stories := 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playFile(t, string(text))
			stories += strings.Count(got, "\n# ") + 1
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(text), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("another outcome (-file +now; -update writes it):\n%s", diff)
			}
		})
	}
	if stories < 60 {
		t.Errorf("only %d stories", stories)
	}
}

// playFile plays all stories of a file, and returns it with what came of them.
func playFile(t *testing.T, text string) string {
	var out strings.Builder
	var w *scenarioWorld
	title := ""
	for _, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(block, "----")
		out.WriteString(strings.TrimRight(commands, "\n") + "\n")
		ran := false
		for line := range strings.Lines(commands) {
			line = strings.TrimSpace(line)
			if after, ok := strings.CutPrefix(line, "# "); ok {
				if !ran && strings.Contains(commands, "\npod ") {
					title = after
				}
				continue
			}
			if line == "" {
				continue
			}
			if strings.HasPrefix(line, "pod ") {
				w = newScenarioWorld()
			}
			if w == nil {
				t.Fatalf("%q before any pod", line)
			}
			if err := w.do(line); err != nil {
				t.Fatalf("%s: %q: %v", title, line, err)
			}
			ran = true
		}
		if ran {
			w.look()
			for _, v := range w.violations {
				t.Errorf("%s, after %q: %s", title, commands, v)
			}
			w.violations = nil
			out.WriteString("----\n" + w.print())
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// roundTrip is the history as another agent reads it.
func roundTrip(h History) (History, error) {
	b, err := json.Marshal(h)
	if err != nil {
		return h, err
	}
	var back History
	return back, json.Unmarshal(b, &back)
}

// look is one turn of a worker's loop.
func (w *scenarioWorld) look() {
	if !w.unchecked {
		if w.keptText != "" && toJSON(w.kept) != w.keptText {
			w.violations = append(w.violations, "Apply changes the history it was given")
		}
		w.kept, w.keptText = w.in.History, toJSON(w.in.History)
	}
	w.in.Observed.At = w.in.Now
	w.in.History = w.in.History.Apply(Looked{Observed: w.in.Observed, UnderWay: w.in.UnderWay})
	for range 10 {
		before := corev1.PodPending
		if old := w.in.History.Status; old != nil {
			before = old.Phase
		}
		d, h := Step(w.in)
		w.in.History = h
		w.d = d
		if !w.unchecked {
			w.violations = append(w.violations, violations(w.in)...)
		}
		var ended *Termination
		if d.Stopped {
			ended = h.Termination
		}
		if want := oraclePhase(w.in.Pod, &d.Status, before, ended); d.Status.Phase != want {
			w.violations = append(w.violations, fmt.Sprintf("phase %s, want %s", d.Status.Phase, want))
		}
		if !w.reconcile() {
			return
		}
	}
	w.violations = append(w.violations, "decisions keep starting actions")
}

func (w *scenarioWorld) reconcile() (again bool) {
	var wanted []Key
	for _, a := range w.d.Work {
		k := a.Key()
		if !slices.Contains(w.in.UnderWay, k) && !slices.Contains(wanted, k) {
			w.in.UnderWay = append(w.in.UnderWay, k)
			w.in.History = w.in.History.Apply(ActionStarted{Action: a, At: w.in.Now})
			w.actions[k] = a
			w.did = append(w.did, k.String())
			again = true
		}
		wanted = append(wanted, k)
	}
	for _, k := range w.in.UnderWay {
		if !slices.Contains(wanted, k) && !w.canceled[k] {
			w.canceled[k] = true
			w.did = append(w.did, "cancel "+k.String())
		}
	}
	return again
}
