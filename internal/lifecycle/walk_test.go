package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// walkPods are pods that walks start from.
var walkPods = []string{
	"containers=app",
	"init=setup,proxy(always startup),other containers=app(readiness liveness prestop),web policy=OnFailure",
	"init=proxy(always prestop),setup containers=app(poststart liveness=3s) policy=Never grace=10s",
	"init=first(always),second(always readiness) containers=app,once(never) deadline=600s",
	"init=setup containers=app(never RestartAllContainers:In:9),web(onfailure Restart:In:0) policy=Never",
	"init=setup(never) containers=app(startup),web(poststart prestop) policy=Always grace=0s hostnetwork",
}

// Walks of random commands, in any order, keep every property of a decision at
// each step; a pod that is deleted after any walk goes. BERTH_SOAK=N walks N
// times more.
func TestWalksKeepAllProperties(t *testing.T) {
	walks := uint64(60)
	if underRace {
		walks = 10
	}
	if n, err := strconv.ParseUint(os.Getenv("BERTH_SOAK"), 10, 64); err == nil {
		walks += n
	}
	for seed := range walks {
		rng := rand.New(rand.NewPCG(seed, 1))
		steps := make([]byte, 120)
		for i := range steps {
			steps[i] = byte(rng.IntN(256))
		}
		if err := walk(steps); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// FuzzWalk lets the fuzzer choose the steps of a walk.
func FuzzWalk(f *testing.F) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		steps := make([]byte, 60)
		for i := range steps {
			steps[i] = byte(rng.IntN(256))
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 200 {
			return
		}
		if err := walk(steps); err != nil {
			t.Error(err)
		}
	})
}

// walk takes the steps that the bytes say, deletes the pod, and lets it settle.
func walk(steps []byte) error {
	next := func() int {
		if len(steps) == 0 {
			return 0
		}
		b := steps[0]
		steps = steps[1:]
		return int(b)
	}
	var path []string
	w := newScenarioWorld()
	do := func(command string) {
		path = append(path, command)
		if err := w.do(command); err != nil {
			path[len(path)-1] += " (" + err.Error() + ")"
		}
	}
	do("pod " + walkPods[next()%len(walkPods)])
	for len(steps) > 0 && len(w.violations) == 0 {
		do(w.nextCommand(next))
		w.look()
	}
	do("delete")
	for range 20 {
		if do("settle"); w.d.Finished {
			break
		}
		do("tick 30s") // what failed before is tried again
	}
	if !w.d.Finished {
		w.violations = append(w.violations, "deleted and not gone:\n"+w.print())
	}
	if len(w.violations) > 0 {
		return fmt.Errorf("%s\nafter:\n%s", w.violations[0], strings.Join(path, "\n"))
	}
	return nil
}

// nextCommand is a command that makes sense now.
func (w *scenarioWorld) nextCommand(next func() int) string {
	names := append(specNames(w), "debug")
	name := names[next()%len(names)]
	kind := next() % 32
	if kind < 14 && len(w.in.UnderWay) > 0 {
		keys := slices.SortedFunc(slices.Values(w.in.UnderWay), Key.Compare)
		k := keys[next()%len(keys)]
		what := string(k.Kind)
		if k.Container != "" {
			what += ":" + k.Container
		}
		switch {
		case w.canceled[k] && kind < 4:
			return "ended " + what + " Canceled"
		case kind == 4:
			return "ended " + what + " Failed it did not work"
		case kind == 5 && k.Kind == StartContainer:
			return []string{"made " + k.Container + " RunContainerError", "created " + k.Container, "appears " + k.Container}[next()%3]
		}
		return "ended " + what
	}
	switch kind {
	case 14, 15:
		return fmt.Sprintf("exit %s %d Error", name, []int{0, 1, 9, 137}[next()%4])
	case 16:
		return "exit " + name + " unknown"
	case 17:
		return "vanish " + name
	case 18:
		return "state " + name + " Unknown"
	case 19:
		return "sandbox lost"
	case 20:
		if len(w.in.Observed.Sandboxes) > 0 {
			return "sandbox notready"
		}
	case 21, 22, 23:
		return fmt.Sprintf("probe %s %s %s", name, []string{"startup", "readiness", "liveness"}[next()%3], []string{"success", "failure"}[next()%2])
	case 24:
		return "restart " + []string{"0s", "1h", "-1h", "5s"}[next()%4]
	case 25:
		return "clock " + []string{"1h", "-1h"}[next()%2]
	case 26:
		return "sources"
	case 27:
		return fmt.Sprintf("image %s other%d", name, next()%3)
	case 28:
		if next()%4 == 0 {
			return "stop Evicted " + []string{"0s", "5s", "1h"}[next()%3]
		}
	case 29:
		if next()%4 == 0 {
			return "delete " + []string{"0s", "1s", "20s"}[next()%3]
		}
	case 30:
		if len(w.in.Pod.Spec.EphemeralContainers) == 0 {
			return "ephemeral debug"
		}
	}
	return "tick " + []string{"1s", "10s", "1m", "11m"}[next()%4]
}

func specNames(w *scenarioWorld) []string {
	var names []string
	for _, c := range w.in.Pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range w.in.Pod.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}
