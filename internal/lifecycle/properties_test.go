package lifecycle

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"time"
)

// violations holds one input, whose history has taken up all that decisions
// began, against the properties of a single decision (architecture 1.5).
func violations(in Input) []string {
	var bad []string
	fail := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	before := toJSON(in)
	d := Decide(in)
	if toJSON(in) != before {
		fail("Decide changes its input")
	}
	if again := Decide(in); !reflect.DeepEqual(again, d) {
		fail("equal input, another decision")
	}
	other := turned(in)
	before2 := toJSON(other)
	if got := Decide(other); !reflect.DeepEqual(got, d) {
		fail("the order of what is observed or under way counts")
	}
	if toJSON(other) != before2 {
		fail("Decide puts its input in order")
	}
	for _, by := range []time.Duration{time.Hour, -72 * time.Hour} {
		var moved Input
		if err := json.Unmarshal([]byte(shiftText(before, by)), &moved); err != nil {
			fail("input does not read back: %v", err)
			continue
		}
		for i := range moved.UnderWay {
			if moved.UnderWay[i].Until != 0 {
				moved.UnderWay[i].Until += int64(by)
			}
		}
		if got, want := toJSON(Decide(moved)), shiftText(toJSON(d), by); got != want {
			fail("at another time another decision:\n%s\n%s", got, want)
		}
	}
	bad = append(bad, lookAgainViolations(in, d)...)
	return append(bad, stabilityViolations(in, d)...)
}

// lookAgainViolations: the decision is the same at any time before LookAgain,
// and differs at it.
func lookAgainViolations(in Input, d Decision) []string {
	later := in
	if d.LookAgain.IsZero() {
		for _, after := range []time.Duration{time.Second, time.Hour, 24 * 365 * time.Hour} {
			later.Now = in.Now.Add(after)
			if got := Decide(later); !reflect.DeepEqual(got, d) {
				return []string{fmt.Sprintf("LookAgain is zero and %s later the decision is another:\n%s\n%s", after, toJSON(d), toJSON(got))}
			}
		}
		return nil
	}
	var bad []string
	if !d.LookAgain.After(in.Now) {
		bad = append(bad, "LookAgain is not to come")
	}
	for _, at := range []time.Time{d.LookAgain.Add(-1), in.Now.Add(d.LookAgain.Sub(in.Now) / 2)} {
		later.Now = at
		if got := Decide(later); !reflect.DeepEqual(got, d) {
			bad = append(bad, fmt.Sprintf("the decision changes before LookAgain:\n%s\n%s", toJSON(d), toJSON(got)))
		}
	}
	later.Now = d.LookAgain
	got := Decide(later)
	got.LookAgain = d.LookAgain
	if reflect.DeepEqual(got, d) {
		bad = append(bad, fmt.Sprintf("nothing differs at LookAgain %s: %s", d.LookAgain, toJSON(d)))
	}
	return bad
}

// stabilityViolations: what was asked for is still asked for once it is under
// way.
func stabilityViolations(in Input, d Decision) []string {
	next := in
	next.UnderWay = slices.Clone(in.UnderWay)
	for _, a := range d.Work {
		if !slices.Contains(next.UnderWay, a.Key()) {
			next.UnderWay = append(next.UnderWay, a.Key())
			next.History = next.History.Apply(ActionStarted{Action: a, At: in.Now})
		}
	}
	var keys []Key
	for _, a := range Decide(next).Work {
		keys = append(keys, a.Key())
	}
	var bad []string
	for _, a := range d.Work {
		if !slices.Contains(keys, a.Key()) {
			bad = append(bad, fmt.Sprintf("%s is wanted no longer once it is under way", a.Key()))
		}
	}
	return bad
}

// turned is the input with all that has no order in another one.
func turned(in Input) Input {
	in.Observed.Containers = slices.Clone(in.Observed.Containers)
	slices.Reverse(in.Observed.Containers)
	in.Observed.Sandboxes = slices.Clone(in.Observed.Sandboxes)
	slices.Reverse(in.Observed.Sandboxes)
	in.UnderWay = slices.Clone(in.UnderWay)
	slices.Reverse(in.UnderWay)
	return in
}

var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// shiftText moves every time in a JSON text.
func shiftText(text string, by time.Duration) string {
	return timestamp.ReplaceAllStringFunc(text, func(s string) string {
		t, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			panic(err)
		}
		if t.IsZero() {
			return s
		}
		return t.Add(by).Format(time.RFC3339Nano)
	})
}

func toJSON(x any) string {
	b, err := json.Marshal(x)
	if err != nil {
		panic(err) // all that decisions depend on is JSON
	}
	return string(b)
}
