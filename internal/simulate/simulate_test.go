package simulate

import (
	"testing"

	"github.com/berth-run/berth/internal/fault"
)

// seeds is how many runs each test run makes.
const seeds = 1000

// A thousand pods, each with its own faults, keep every property of the core.
func TestPropertiesHoldOnAllSeeds(t *testing.T) {
	failures := 0
	for seed := range uint64(seeds) {
		r := Run(Config{Seed: seed})
		if len(r.Violations) == 0 {
			continue
		}
		least := Shrink(r, Config{Story: true})
		t.Errorf("seed %d, faults %q: %v\nstory with the fewest faults, %q: %v\n%s",
			seed, fault.Format(r.Faults), r.Violations, fault.Format(least.Faults), least.Violations, least.Story)
		if failures++; failures == 3 {
			t.Fatal("and maybe more")
		}
	}
}

// A run is the same each time, and reading its faults back makes it again.
func TestRunsRepeatBitForBit(t *testing.T) {
	for seed := range uint64(100) {
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
