package cri

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestChooseDead(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	// Containers are name-attempt@sandbox:hours since the end, sandboxes name:hours.
	sandboxes := "s1:1 s5:5 s9:9"
	containers := "a-3@live:1 a-2@live:2 a-1@live:3 b-1@live:8 a-1@s1:4 c-1@s9:10"
	cases := map[string]struct {
		limits DeadLimits
		want   string
	}{
		"without limits all stays":              {DeadLimits{}, ""},
		"a minimum alone removes nothing":       {DeadLimits{MinAge: time.Hour}, ""},
		"what ended long ago goes":              {DeadLimits{MaxAge: 7 * time.Hour}, "s9 b-1@live"},
		"what is as old as allowed stays":       {DeadLimits{MaxAge: 8 * time.Hour}, "s9"},
		"so many sandboxes stay":                {DeadLimits{Sandboxes: 1}, "s5 s9"},
		"containers go with their sandbox":      {DeadLimits{Sandboxes: 2, Containers: 5}, "s9"},
		"so many containers stay":               {DeadLimits{Containers: 2}, "a-1@live a-1@s1 b-1@live c-1@s9"},
		"so many attempts of each stay":         {DeadLimits{PerContainer: 1}, "a-2@live a-1@live"},
		"those don't count for all containers":  {DeadLimits{PerContainer: 1, Containers: 3}, "a-2@live a-1@live c-1@s9"},
		"what ended a moment ago stays anyway":  {DeadLimits{Sandboxes: 1, PerContainer: 1, MinAge: 3 * time.Hour}, "s5 s9 a-1@live"},
		"too young ones count, so that all fit": {DeadLimits{Containers: 1, MinAge: 4 * time.Hour}, "a-1@s1 b-1@live c-1@s9"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			goneSandboxes, goneContainers := chooseDead(now, gravesOf(t, now, sandboxes), gravesOf(t, now, containers), c.limits)
			if diff := cmp.Diff(c.want, strings.Join(append(goneSandboxes, goneContainers...), " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func gravesOf(t *testing.T, now time.Time, text string) (list []grave) {
	t.Helper()
	for _, f := range strings.Fields(text) {
		id, hours, _ := strings.Cut(f, ":")
		n, err := strconv.Atoi(hours)
		if err != nil {
			t.Fatal(err)
		}
		name, sandbox, _ := strings.Cut(id, "@")
		name, _, _ = strings.Cut(name, "-")
		list = append(list, grave{id: id, sandbox: sandbox, of: sandbox + name, ended: now.Add(-time.Duration(n) * time.Hour)})
	}
	return list
}

// Nothing twice, nothing too young, all that is too old, no more than the limits
// want, and with nothing of what is chosen left, nothing more.
func TestChooseDeadHoldsItsPromises(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		age := rapid.IntRange(0, 100)
		var sandboxes, containers []grave
		for i := range rapid.IntRange(0, 5).Draw(t, "sandboxes") {
			sandboxes = append(sandboxes, grave{id: fmt.Sprint("s", i), ended: now.Add(-time.Duration(age.Draw(t, "age")) * time.Second)})
		}
		for i := range rapid.IntRange(0, 10).Draw(t, "containers") {
			containers = append(containers, grave{
				id: fmt.Sprint("c", i), sandbox: fmt.Sprint("s", rapid.IntRange(0, 8).Draw(t, "in")), of: fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "of")),
				ended: now.Add(-time.Duration(age.Draw(t, "age")) * time.Second),
			})
		}
		l := DeadLimits{
			MinAge:    time.Duration(rapid.IntRange(0, 50).Draw(t, "min")) * time.Second,
			MaxAge:    time.Duration(rapid.IntRange(0, 100).Draw(t, "max")) * time.Second,
			Sandboxes: rapid.IntRange(0, 4).Draw(t, "s"), Containers: rapid.IntRange(0, 8).Draw(t, "c"), PerContainer: rapid.IntRange(0, 3).Draw(t, "p"),
		}
		goneSandboxes, goneContainers := chooseDead(now, sandboxes, containers, l)
		gone := append(slices.Clone(goneSandboxes), goneContainers...)
		if len(slices.Compact(slices.Sorted(slices.Values(gone)))) != len(gone) {
			t.Fatalf("one goes twice: %v", gone)
		}
		is := func(g grave) bool { return slices.Contains(gone, g.id) || slices.Contains(goneSandboxes, g.sandbox) }
		of := make(map[string]int)
		left := 0
		for _, g := range append(slices.Clone(sandboxes), containers...) {
			old := now.Sub(g.ended)
			withIt := slices.Contains(goneSandboxes, g.sandbox)
			if slices.Contains(gone, g.id) && (old < l.MinAge || withIt) {
				t.Fatalf("%v is chosen", g)
			}
			if !is(g) && l.MaxAge > 0 && old > l.MaxAge && old >= l.MinAge {
				t.Fatalf("%v is too old and stays", g)
			}
			if !is(g) && g.sandbox != "" && old >= l.MinAge {
				of[g.of]++
				left++
			}
		}
		for name, n := range of {
			if l.PerContainer > 0 && n > l.PerContainer {
				t.Fatalf("%d attempts of %s stay", n, name)
			}
		}
		if l.Containers > 0 && left > l.Containers {
			t.Fatalf("%d containers stay", left)
		}
		againSandboxes, againContainers := chooseDead(now, slices.DeleteFunc(slices.Clone(sandboxes), is), slices.DeleteFunc(slices.Clone(containers), is), l)
		if len(againSandboxes)+len(againContainers) > 0 {
			t.Fatalf("after that %v %v would go, too", againSandboxes, againContainers)
		}
	})
}
