package probe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/berth-run/berth/internal/lifecycle"
)

// letters writes outcomes: S success, F failure, . undecided; then "!" once no
// further check counts.
func letter(t Tally) string {
	s := map[lifecycle.Outcome]string{lifecycle.Success: "S", lifecycle.Failure: "F", lifecycle.Undecided: "."}[t.Outcome]
	if t.Done {
		s += "!"
	}
	return s
}

func TestTally(t *testing.T) {
	const start, ready, live = lifecycle.StartupProbe, lifecycle.ReadinessProbe, lifecycle.LivenessProbe
	const none, good, bad = lifecycle.Undecided, lifecycle.Success, lifecycle.Failure
	type probe = corev1.Probe
	for name, c := range map[string]struct {
		kind    lifecycle.ProbeKind
		spec    probe
		last    lifecycle.Outcome
		results string // + success, - failure
		want    string // outcome before the first and after each result
	}{
		"liveness begins alive":                               {live, probe{FailureThreshold: 3}, none, "", "S"},
		"two failures of three do nothing":                    {live, probe{FailureThreshold: 3}, none, "--+", "SSSS"},
		"the third failure in a row counts, and is the last":  {live, probe{FailureThreshold: 3}, none, "--+---+", "SSSSSSF!F!"},
		"one success between failures starts them anew":       {live, probe{FailureThreshold: 2}, none, "-+-+--", "SSSSSSF!"},
		"thresholds of zero are one":                          {live, probe{}, none, "-", "SF!"},
		"readiness begins not ready":                          {ready, probe{FailureThreshold: 3}, none, "", "F"},
		"one success makes ready":                             {ready, probe{SuccessThreshold: 1, FailureThreshold: 3}, none, "-+", "FFS"},
		"two successes of three do not":                       {ready, probe{SuccessThreshold: 3, FailureThreshold: 3}, none, "++-+++", "FFFFFFS"},
		"readiness goes on after a failure":                   {ready, probe{SuccessThreshold: 1, FailureThreshold: 2}, none, "+--+", "FSSFS"},
		"a remembered readiness is kept below the threshold":  {ready, probe{SuccessThreshold: 1, FailureThreshold: 3}, good, "--+", "SSSS"},
		"a remembered readiness ends at the threshold":        {ready, probe{SuccessThreshold: 1, FailureThreshold: 3}, good, "---", "SSSF"},
		"remembered as not ready, ready with the first check": {ready, probe{SuccessThreshold: 1, FailureThreshold: 3}, bad, "+", "FS"},
		"startup begins undecided":                            {start, probe{FailureThreshold: 3}, none, "--", "..."},
		"the first success starts, and is the last":           {start, probe{FailureThreshold: 3}, none, "--+---", "...S!S!S!S!"},
		"startup fails at the threshold only":                 {start, probe{FailureThreshold: 3}, none, "---+", "...F!F!"},
		"a remembered start is not asked again":               {start, probe{FailureThreshold: 3}, good, "---", "S!S!S!S!"},
		"a remembered death is not asked again":               {live, probe{FailureThreshold: 1}, bad, "+", "F!F!"},
	} {
		t.Run(name, func(t *testing.T) {
			tally := NewTally(c.kind, &c.spec, c.last)
			var got strings.Builder
			got.WriteString(letter(tally))
			for _, r := range c.results {
				before := tally.Outcome
				var flipped bool
				tally, flipped = tally.Add(r == '+')
				if flipped != (before != tally.Outcome) {
					t.Errorf("after %q: flipped is %t, outcome %q → %q", c.results, flipped, before, tally.Outcome)
				}
				got.WriteString(letter(tally))
			}
			if diff := cmp.Diff(c.want, got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An outcome that flips has its threshold's worth of equal results behind it.
func TestTallyFlipsOnlyAtTheThreshold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]lifecycle.ProbeKind{lifecycle.StartupProbe, lifecycle.ReadinessProbe, lifecycle.LivenessProbe}).Draw(t, "kind")
		spec := &corev1.Probe{
			SuccessThreshold: rapid.Int32Range(0, 4).Draw(t, "success"),
			FailureThreshold: rapid.Int32Range(0, 4).Draw(t, "failure"),
		}
		tally := NewTally(kind, spec, lifecycle.Undecided)
		results := rapid.SliceOfN(rapid.Bool(), 0, 40).Draw(t, "results")
		for i, ok := range results {
			run := 0
			for j := i; j >= 0 && results[j] == ok; j-- {
				run++
			}
			threshold := max(1, spec.FailureThreshold)
			if ok {
				threshold = max(1, spec.SuccessThreshold)
			}
			done := tally.Done
			var flipped bool
			tally, flipped = tally.Add(ok)
			if flipped && (done || int32(run) < threshold) {
				t.Fatalf("flipped at %d after %d equal results of %d, done %t", i, run, threshold, done)
			}
			if !done && int32(run) >= threshold && (tally.Outcome == lifecycle.Success) != ok {
				t.Fatalf("at %d: %d equal results of %d and outcome %q", i, run, threshold, tally.Outcome)
			}
		}
	})
}
