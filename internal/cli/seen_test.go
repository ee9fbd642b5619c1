package cli

import (
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/nodeapi"
)

// A stream that was cut goes on where it was, also when the clock was set
// meanwhile. A line is its time in seconds.
func TestLinesAreShownOnce(t *testing.T) {
	for name, c := range map[string]struct{ shown, again, want []int }{
		"what was shown is not shown again":               {[]int{1, 2, 3}, []int{1, 2, 3, 4}, []int{4}},
		"lines of one time are counted":                   {[]int{1, 2, 2}, []int{1, 2, 2, 2, 3}, []int{2, 3}},
		"what was rotated away is not waited for":         {[]int{1, 2, 3}, []int{5, 6}, []int{5, 6}},
		"the clock was set back before the cut":           {[]int{1, 100, 101, 2, 3}, []int{1, 100, 101, 2, 3, 4}, []int{4}},
		"the clock was set back after the cut":            {[]int{1, 100, 101}, []int{1, 100, 101, 2, 3}, []int{2, 3}},
		"the clock was set forward after the cut":         {[]int{1, 2}, []int{1, 2, 100, 101}, []int{100, 101}},
		"the last line was taken back and written anew":   {[]int{1, 2, 3}, []int{1, 2, 4, 5}, []int{4, 5}},
		"nothing was shown, all is new":                   {nil, []int{1, 2}, []int{1, 2}},
		"what comes at a time that was, after the last":   {[]int{5, 3}, []int{5, 3, 4, 5, 6}, []int{4, 5, 6}},
		"the clock was set back, and what follows is new": {[]int{9, 1}, []int{9, 1, 1, 2}, []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			line := func(s int) nodeapi.LogLine { return nodeapi.LogLine{Time: time.Unix(int64(s), 0)} }
			seen := newSeenLines()
			for _, s := range c.shown {
				seen.add(line(s))
			}
			skip := seen.again()
			var got []int
			for _, s := range c.again {
				if !skip.knows(line(s)) {
					got = append(got, s)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("shown %v, want %v", got, c.want)
			}
		})
	}
}
