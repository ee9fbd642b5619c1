package probe

import "time"

// slowAfter is how long a check counts against the checks allowed at once. One
// that takes longer waits for its target and needs no processor meanwhile.
const slowAfter = 50 * time.Millisecond

// lane limits how many checks begin at once. Only checks younger than slowAfter
// count, so that targets that hang can't take all places: the number of checks
// alive is bounded by the number of probes, the rush of processor work by limit.
type lane struct {
	limit   int
	waiting []*runner // due, in order
	young   []*flight // begun and neither ended nor slow, the oldest first
}

// settle takes out flights that have ended or become slow.
func (l *lane) settle(now time.Time) {
	kept := l.young[:0]
	for _, f := range l.young {
		if !f.ended && now.Sub(f.began) < slowAfter {
			kept = append(kept, f)
		}
	}
	clear(l.young[len(kept):])
	l.young = kept
}

// next takes the next probe that may be checked now.
func (l *lane) next() (*runner, bool) {
	for len(l.waiting) > 0 && len(l.young) < l.limit {
		r := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		r.waiting = false
		if !r.gone {
			return r, true
		}
	}
	return nil, false
}

// lookAgain is when a place becomes free by time alone; zero: nobody waits.
func (l *lane) lookAgain() time.Time {
	if len(l.waiting) == 0 || len(l.young) == 0 {
		return time.Time{}
	}
	return l.young[0].began.Add(slowAfter)
}
