package simulate

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// docs/model.md draws the states of pods and containers that runs come through,
// and the ways between them; -update draws them anew.
func TestModelDrawsTheStates(t *testing.T) {
	if underRace {
		t.Skip("needs many runs: goes without the race detector")
	}
	pods, containers := ways{}, ways{}
	for seed := range uint64(400) {
		pod := "start"
		at := map[string]string{}
		Run(Config{Seed: seed, Decided: func(_ *corev1.Pod, d lifecycle.Decision) {
			pod = pods.along(pod, podState(d))
			for _, list := range [][]corev1.ContainerStatus{d.Status.InitContainerStatuses, d.Status.ContainerStatuses} {
				for i := range list {
					name := list[i].Name
					if at[name] == "" {
						at[name] = "start"
					}
					at[name] = containers.along(at[name], containerState(list[i].State))
				}
			}
		}})
	}
	const file = "../../docs/model.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := replace(t, string(b), "<!-- pod states -->", pods.draw())
	text = replace(t, text, "<!-- container states -->", containers.draw())
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(b), text); diff != "" {
		t.Errorf("docs/model.md draws other states (-file +seen; -update draws them):\n%s", diff)
	}
}

func podState(d lifecycle.Decision) string {
	switch {
	case d.Finished:
		return "gone"
	case d.Stopped:
		return string(d.Status.Phase)
	case slices.ContainsFunc(d.Reasons, func(r lifecycle.Reason) bool { return r.Code == "Terminating" }):
		return "ending"
	}
	return string(d.Status.Phase)
}

func containerState(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return "ended"
	case s.Waiting.Reason == lifecycle.ReasonCrashLoopBackOff:
		return "backing off"
	case s.Waiting.Reason == lifecycle.ReasonContainerCreating, s.Waiting.Reason == lifecycle.ReasonPodInitializing:
		return "waiting"
	}
	return "failing"
}

// ways are the ways from state to state that were gone, and how often.
type ways map[[2]string]int

func (w ways) along(from, to string) string {
	if from != to {
		w[[2]string{from, to}]++
	}
	return to
}

// draw is a Mermaid drawing of the ways.
func (w ways) draw() string {
	var lines []string
	for way := range w {
		from, to := id(way[0]), id(way[1])
		lines = append(lines, fmt.Sprintf("    %s --> %s", from, to))
	}
	slices.Sort(lines)
	return "```mermaid\nstateDiagram-v2\n" + strings.Join(lines, "\n") + "\n```\n"
}

func id(state string) string {
	if state == "start" || state == "gone" {
		return "[*]"
	}
	return strings.ReplaceAll(state, " ", "_")
}

func replace(t *testing.T, text, begin, with string) string {
	t.Helper()
	before, rest, ok := strings.Cut(text, begin+"\n")
	_, after, ok2 := strings.Cut(rest, "<!-- end -->")
	if !ok || !ok2 {
		t.Fatalf("docs/model.md has no %s", begin)
	}
	return before + begin + "\n" + with + "<!-- end -->" + after
}
