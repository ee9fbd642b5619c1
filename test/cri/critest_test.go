package cri

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// seedEnv repeats a run of critest: its specs run in an order that differs from
// run to run.
const seedEnv = "BERTH_CRITEST_SEED"

// Every spec of critest passes, but those that are listed as lacking. In a second
// run, those about streams do so over WebSocket, too; the first uses SPDY.
func TestCritest(t *testing.T) {
	n := newNode(t)
	seed := os.Getenv(seedEnv)
	if seed == "" {
		seed = strconv.FormatInt(time.Now().Unix(), 10)
	}
	t.Run("all specs", func(t *testing.T) {
		passed, problems := judge(n.critest(t, seed), lacking())
		t.Logf("%d specs passed, %d were left out, with %s=%s", passed, len(lacking()), seedEnv, seed)
		for _, p := range problems {
			t.Error(p)
		}
	})
	t.Run("streams over WebSocket", func(t *testing.T) {
		specs := n.critest(t, seed, "-ginkgo.focus=Streaming", "-websocket-exec", "-websocket-attach", "-websocket-portforward")
		passed, problems := judge(inFocus(specs), nil)
		if passed == 0 {
			t.Error("no spec is about streams")
		}
		for _, p := range problems {
			t.Error(p)
		}
	})
	if left := n.call(t, "pods", "--quiet") + n.call(t, "ps", "--all", "--quiet"); left != "" {
		t.Errorf("critest left pods and containers: %s", left)
	}
}

// specProcesses is how many specs run at once: most of their time they wait.
const specProcesses = 4

// critest runs critest and returns what came of each spec. What it prints is shown
// if the test fails.
func (n *node) critest(t *testing.T, seed string, args ...string) types.SpecReports {
	t.Helper()
	// Specs mount folders that they make below TMPDIR.
	scratch := t.TempDir()
	report := filepath.Join(scratch, "report.json")
	cmd := exec.CommandContext(t.Context(), n.tools.critest(), append([]string{
		"-runtime-endpoint=" + n.endpoint, "-parallel=" + strconv.Itoa(specProcesses),
		"-ginkgo.seed=" + seed, "-ginkgo.json-report=" + report, "-ginkgo.no-color", "-ginkgo.timeout=15m",
	}, args...)...)
	cmd.Dir = scratch
	cmd.Env = append(os.Environ(), "TMPDIR="+scratch, "PATH="+n.tools.bin()+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("critest: %v; %s=%s repeats this order", err, seedEnv, seed)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("critest wrote no report: %v\n%s", err, out)
	}
	var suites []types.Report
	if err := json.Unmarshal(text, &suites); err != nil || len(suites) != 1 {
		t.Fatalf("critest's report has %d suites (%v), want one", len(suites), err)
	}
	return suites[0].SpecReports
}

// judge counts the specs that passed and tells all that is not as it must be: each
// spec that failed, that was skipped and is not listed as lacking, or that is
// listed and was not skipped.
func judge(specs types.SpecReports, lacking map[string]string) (passed int, problems []string) {
	unseen := maps.Clone(lacking)
	for _, s := range specs {
		name := s.FullText()
		reason, listed := lacking[name]
		delete(unseen, name)
		switch {
		case s.State.Is(types.SpecStateFailureStates):
			problems = append(problems, fmt.Sprintf("%s (%s): %s\n%s\n%s", name, s.State, s.Failure.Message, s.Failure.Location, s.CapturedGinkgoWriterOutput))
		case s.LeafNodeType != types.NodeTypeIt || strings.Contains(name, "benchmark"): // measurements are no specs
		case s.State == types.SpecStateSkipped && !listed:
			problems = append(problems, fmt.Sprintf("%s: skipped: %q", name, s.Failure.Message))
		case s.State == types.SpecStatePassed && listed:
			problems = append(problems, fmt.Sprintf("%s: passes now, yet is listed as lacking: %s", name, reason))
		case s.State == types.SpecStatePassed:
			passed++
		case s.State != types.SpecStateSkipped:
			problems = append(problems, fmt.Sprintf("%s: did not run: %s", name, s.State))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unseen)) {
		problems = append(problems, name+": is listed as lacking, and critest has no such spec")
	}
	return passed, problems
}

// inFocus leaves out the specs that critest was not asked to run: they alone are
// skipped without a word.
func inFocus(specs types.SpecReports) (focused types.SpecReports) {
	for _, s := range specs {
		if s.State != types.SpecStateSkipped || s.Failure.Message != "" {
			focused = append(focused, s)
		}
	}
	return focused
}
