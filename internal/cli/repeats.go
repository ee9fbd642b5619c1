package cli

import (
	"fmt"
	"regexp"
	"time"

	"github.com/berth-run/berth/internal/format"
)

const (
	// repeatAfter is how long a warning that comes again and again is not told once
	// more; each time twice as long, and repeatAtMost in the end.
	repeatAfter  = 30 * time.Second
	repeatAtMost = 8 * time.Minute
	// manyTexts is how many different texts of a warning are each told when they
	// come. One that has something new to say each time is told as one that has not.
	manyTexts = 8
)

// repeats thins out a warning that is given again and again. The zero value is one
// that was never given.
type repeats struct {
	texts       map[string]bool // that were told
	n           int             // how often it was given
	first, told time.Time
	wait        time.Duration
}

// add notes that the warning was given, and says whether to tell it. With times,
// the text is known, and that is how often it was given so far.
func (r *repeats) add(text string, at time.Time) (times string, tell bool) {
	if r.n++; r.n == 1 {
		r.texts, r.first, r.told, r.wait = make(map[string]bool), at, at, repeatAfter
	}
	if text = withoutPorts(text); !r.texts[text] && len(r.texts) < manyTexts {
		r.texts[text], r.told = true, at
		return "", true
	}
	if at.Sub(r.told) < r.wait {
		return "", false
	}
	r.told, r.wait = at, min(2*r.wait, repeatAtMost)
	return fmt.Sprintf("%d times in %s", r.n, format.Duration(at.Sub(r.first).Truncate(time.Second))), true
}

// ownPort is the port at this end of a connection, which is another one each time.
var ownPort = regexp.MustCompile(`:\d+->`)

func withoutPorts(text string) string { return ownPort.ReplaceAllString(text, "->") }
