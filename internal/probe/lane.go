package probe

import "time"

// lane limits how many checks begin at once. Only young checks count, so that
// targets that hang can't take all places: the number of checks alive is bounded
// by the number of probes, the rush of processor work by limit.
//
// Probes whose last check was slow wait in a queue of their own, which gets every
// fourth place only while others wait. So many targets that hang don't hold up
// those that answer, and the other way round nobody waits for ever.
type lane struct {
	limit     int
	slowAfter time.Duration // how long a check is young
	quick     []*runner     // due, in order
	slow      []*runner     // due, and the last check was slow
	young     []*flight     // begun and neither ended nor slow, the oldest first
	turns     int           // places given
}

// slowTurn is which place goes to a slow one.
const slowTurn = 4

func (l *lane) add(r *runner) {
	if r.slow {
		l.slow = append(l.slow, r)
	} else {
		l.quick = append(l.quick, r)
	}
}

func (l *lane) waiting() int { return len(l.quick) + len(l.slow) }

// settle takes out flights that have ended or become slow.
func (l *lane) settle(now time.Time) {
	kept := l.young[:0]
	for _, f := range l.young {
		if !f.ended && now.Sub(f.began) < l.slowAfter {
			kept = append(kept, f)
		}
	}
	clear(l.young[len(kept):])
	l.young = kept
}

// next takes the next probe that may be checked now.
func (l *lane) next() (*runner, bool) {
	for l.waiting() > 0 && len(l.young) < l.limit {
		from := &l.quick
		if l.turns++; len(l.quick) == 0 || len(l.slow) > 0 && l.turns%slowTurn == 0 {
			from = &l.slow
		}
		r := (*from)[0]
		(*from)[0] = nil
		*from = (*from)[1:]
		if !r.gone {
			return r, true
		}
	}
	return nil, false
}

// lookAgain is when a place becomes free by time alone; zero: nobody waits.
func (l *lane) lookAgain() time.Time {
	if l.waiting() == 0 || len(l.young) == 0 {
		return time.Time{}
	}
	return l.young[0].began.Add(l.slowAfter)
}
