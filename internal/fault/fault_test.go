package fault

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/lifecycle"
)

func TestFaultsPrintAsTheyParse(t *testing.T) {
	for text, want := range map[string]Fault{
		"fail(StartContainer, app, 3)": {Kind: Fail, Action: lifecycle.StartContainer, Container: "app", Times: 3},
		"fail(CreateSandbox)":          {Kind: Fail, Action: lifecycle.CreateSandbox, Times: 1},
		"fail(CreateSandbox, 2)":       {Kind: Fail, Action: lifecycle.CreateSandbox, Times: 2},
		"slow(PullImage, 1m30s)":       {Kind: Slow, Action: lifecycle.PullImage, For: 90 * time.Second},
		"slow(PullImage, app, 90ms)":   {Kind: Slow, Action: lifecycle.PullImage, Container: "app", For: 90 * time.Millisecond},
		"late-effect(StartContainer)":  {Kind: LateEffect, Action: lifecycle.StartContainer, Times: 1},
		"lose-event":                   {Kind: LoseEvent, Times: 1},
		"lose-event(5)":                {Kind: LoseEvent, Times: 5},
		"sandbox-lost":                 {Kind: SandboxLost},
		"exit(app, 137)":               {Kind: Exit, Container: "app", Code: 137},
		"@30s kill-agent":              {Kind: KillAgent, After: 30 * time.Second},
		"clock+1h":                     {Kind: Clock, For: time.Hour},
		"@1m clock-1h":                 {Kind: Clock, For: -time.Hour, After: time.Minute},
		"disk-full":                    {Kind: DiskFull},
		"runtime-gone(2m)":             {Kind: RuntimeGone, For: 2 * time.Minute},
		"api-409":                      {Kind: APIConflict, Times: 1},
		"api-gone(1m)":                 {Kind: APIGone, For: time.Minute},
	} {
		got, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
		if got.String() != text {
			t.Errorf("%q prints as %q", text, got.String())
		}
	}
}

func TestNonsenseIsNoFault(t *testing.T) {
	for _, text := range []string{
		"", "fial", "fail", "fail()", "fail(Dance)", "fail(StartContainer, app, 0)", "fail(StartContainer, app, 1, 2)",
		"fail(StartContainer", "slow(PullImage)", "slow(PullImage, app)", "clock", "clock1h", "clock+", "@x kill-agent",
		"kill-agent(1)", "exit(app)", "disk-full(x)", "runtime-gone(-1s)", "@-1s kill-agent",
	} {
		if f, err := Parse(text); err == nil {
			t.Errorf("%q parses as %v", text, f)
		}
	}
}

func TestListsOfFaults(t *testing.T) {
	text := "fail(PullImage, 2); @5s kill-agent; runtime-gone(2m)"
	faults, err := ParseAll(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := Format(faults); got != text {
		t.Errorf("prints as %q, want %q", got, text)
	}
	if _, err := ParseAll("kill-agent; nonsense; more"); err == nil {
		t.Error("nonsense in a list was accepted")
	}
}

func TestFaultsStrikeAsOftenAsTheySay(t *testing.T) {
	began := time.Unix(1000, 0)
	faults, err := ParseAll("fail(StartContainer, app, 2); slow(StartContainer, 1s); late-effect(StartContainer); @10s runtime-gone(5s); lose-event")
	if err != nil {
		t.Fatal(err)
	}
	in := NewInjector(began, faults)
	var got []Effect
	for range 3 {
		got = append(got, in.Action(began, lifecycle.StartContainer, "app"))
	}
	want := []Effect{{Fail: true, Slow: time.Second, Late: true}, {Fail: true, Slow: time.Second}, {Slow: time.Second}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("effects (-want +got)\n%s", diff)
	}
	for after, want := range map[time.Duration]bool{9 * time.Second: false, 10 * time.Second: true, 15 * time.Second: false} {
		if got := in.Active(began.Add(after), RuntimeGone); got != want {
			t.Errorf("runtime gone after %s: %v", after, got)
		}
	}
	if _, ok := in.Take(began, LoseEvent); !ok {
		t.Error("no event lost")
	}
	if _, ok := in.Take(began, LoseEvent); ok {
		t.Error("a second event lost")
	}
}

// Whatever parses prints as something that parses to the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"fail(StartContainer, app, 3)", "@30s kill-agent", "clock-1h", "exit(app, -1)", "slow(PullImage, 1ns)"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, err := Parse(text)
		if err != nil {
			return
		}
		second, err := Parse(first.String())
		if err != nil || first != second {
			t.Errorf("%q parses as %+v, prints as %q, and parses again as %+v, %v", text, first, first.String(), second, err)
		}
	})
}
