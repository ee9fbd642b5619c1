package simulate

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/fault"
)

var update = flag.Bool("update", false, "write the stories in testdata")

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // runs make much garbage and keep little
	os.Exit(m.Run())
}

// holdOn runs the seeds from first on, and reports up to three failing ones with
// the fewest faults.
func holdOn(t *testing.T, first, count uint64) {
	failures := 0
	for seed := first; seed < first+count; seed++ {
		r := Run(Config{Seed: seed})
		if len(r.Violations) == 0 {
			continue
		}
		t.Errorf("%v\nwith the fewest faults:\n%s", r.Violations, Format(Shrink(r, Config{Story: true})))
		if failures++; failures == 3 {
			t.Fatal("and maybe more")
		}
	}
}

// A thousand pods, each with its own faults, keep every property of the core.
func TestPropertiesHoldOnAllSeeds(t *testing.T) {
	seeds := uint64(1000)
	if underRace {
		seeds = 60
	}
	holdOn(t, 0, seeds)
}

// BERTH_SOAK=N runs N seeds more, beginning with BERTH_SOAK_FIRST.
func TestSoak(t *testing.T) {
	count, err := strconv.ParseUint(os.Getenv("BERTH_SOAK"), 10, 64)
	if err != nil {
		t.Skip("needs BERTH_SOAK=N, the number of seeds to run")
	}
	first := uint64(1000)
	if s := os.Getenv("BERTH_SOAK_FIRST"); s != "" {
		if first, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	holdOn(t, first, count)
}

// A run is the same each time, and reading its faults back makes it again.
func TestRunsRepeatBitForBit(t *testing.T) {
	seeds := uint64(30)
	if underRace {
		seeds = 5
	}
	for seed := range seeds {
		first := Run(Config{Seed: seed, Story: true})
		faults, err := fault.ParseAll(fault.Format(first.Faults))
		if err != nil {
			t.Fatal(err)
		}
		if faults == nil {
			faults = []fault.Fault{}
		}
		again := Run(Config{Seed: seed, Faults: faults, Story: true})
		if first.Hash != again.Hash || first.Story != again.Story {
			t.Fatalf("seed %d: two runs differ:\n%s\n---\n%s", seed, first.Story, again.Story)
		}
	}
}

// Three stories are kept, bit for bit: another one means that the rules or the
// model changed, and is read in the diff.
func TestStoriesAreAsTheyWere(t *testing.T) {
	for _, seed := range []uint64{3, 10, 44} {
		file := fmt.Sprintf("testdata/seed-%d.txt", seed)
		got := Format(Run(Config{Seed: seed, Story: true}))
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-file +now; -update writes it):\n%s", file, diff)
		}
	}
}

// Shrink keeps what the failure needs and drops what it does not.
func TestShrinkDropsFaultsThatDoNotMatter(t *testing.T) {
	needed := fault.Fault{Kind: fault.KillAgent}
	faults := []fault.Fault{{Kind: fault.SandboxLost}, needed, {Kind: fault.LoseEvent, Times: 2}}
	tried := 0
	r := shrink(Result{Faults: faults, Violations: []string{"bad"}}, func(f []fault.Fault) Result {
		tried++
		r := Result{Faults: f}
		for _, x := range f {
			if x == needed {
				r.Violations = []string{"bad"}
			}
		}
		return r
	})
	if diff := cmp.Diff([]fault.Fault{needed}, r.Faults); diff != "" {
		t.Errorf("faults left (-want +got):\n%s", diff)
	}
	if tried == 0 {
		t.Error("nothing was run")
	}
}

// A run without faults has none, also not those of the seed.
func TestNoFaultsAreNoFaults(t *testing.T) {
	if r := Run(Config{Seed: 10, Faults: []fault.Fault{}}); len(r.Faults) != 0 || len(r.Violations) != 0 {
		t.Errorf("faults %v, violations %v", r.Faults, r.Violations)
	}
}
