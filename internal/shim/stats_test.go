package shim_test

import (
	"errors"
	"path"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
)

// A group is read with all below it, and only a real one.
func TestStatsOfAGroup(t *testing.T) {
	n := newNode(t)
	var group string
	for _, id := range []string{"a", "b"} {
		n.start(n.bundle(id, func(s *specs.Spec) { group = path.Dir(s.Linux.CgroupsPath) }, "init"))
	}
	a, errA := n.Stats(n.ctx, "a")
	b, errB := n.Stats(n.ctx, "b")
	s, err := n.GroupStats(n.ctx, group)
	if err := errors.Join(errA, errB, err); err != nil {
		t.Fatal(err)
	}
	if s.CPUUsage < a.CPUUsage+b.CPUUsage || s.Processes < a.Processes+b.Processes || a.Processes != 1 || b.Processes != 1 || s.Details != nil {
		t.Errorf("%+v of\n%+v and\n%+v", s, a, b)
	}
	if s.MemoryUsageBytes <= max(a.MemoryUsageBytes, b.MemoryUsageBytes) {
		t.Errorf("memory %d of %d and %d", s.MemoryUsageBytes, a.MemoryUsageBytes, b.MemoryUsageBytes)
	}
	if s, err := n.GroupStats(n.ctx, group+"/none"); !errors.Is(err, shim.ErrNotFound) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, wrong := range []string{"/", "relative", group + "/../x"} {
		if s, err := n.GroupStats(n.ctx, wrong); err == nil || errors.Is(err, shim.ErrNotFound) {
			t.Errorf("%s: %+v, %v", wrong, s, err)
		}
	}
}

func TestDetailedStats(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", func(s *specs.Spec) {
		// One that Go leaves alone.
		s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_MSGQUEUE", Soft: 321, Hard: 400}}
	}, "init")
	n.start(r)
	if s, err := n.Stats(n.ctx, "a"); err != nil || s.Details != nil {
		t.Errorf("%+v, %v", s, err)
	}
	s, err := n.DetailedStats(n.ctx, "a")
	if err != nil || s.Processes != 1 || s.PIDs < 1 || s.Details.Descriptors < 3 || s.Details.Sockets != 0 {
		t.Fatalf("%+v, %+v, %v", s, s.Details, err)
	}
	if want := (shim.SoftLimit{Name: "Max msgqueue size", Value: 321}); !slices.Contains(s.Details.SoftLimits, want) {
		t.Errorf("limits %+v", s.Details.SoftLimits)
	}
}
