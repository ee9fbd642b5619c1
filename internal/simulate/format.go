package simulate

import (
	"fmt"
	"strings"

	"github.com/berth-run/berth/internal/fault"
)

// Format tells a run to a person: what was simulated, its story if one was
// asked for, and what came of it. The first line is enough to run it again.
func Format(r Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d", r.Seed)
	if len(r.Faults) > 0 {
		fmt.Fprintf(&b, ", faults %q", fault.Format(r.Faults))
	}
	b.WriteString("\n")
	if r.Story != "" {
		fmt.Fprintf(&b, "%s\n", r.Story)
	}
	fmt.Fprintf(&b, "%d decisions, %d actions, hash %016x\n", r.Decisions, r.Actions, r.Hash)
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "VIOLATION at %s\n", v)
	}
	if len(r.Violations) == 0 {
		b.WriteString("every property held\n")
	}
	return b.String()
}
