package cli

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/nodeapi"
)

// seenLines remembers how far the log of each container was shown, so that a
// stream that was cut goes on without a gap or a repetition. Lines may have the
// same time: those are counted. Times may go back, as the clock does when it is set.
type seenLines struct{ last map[containerKey]seenLine }

type containerKey struct {
	uid       types.UID
	container string
}

type seenLine struct {
	attempt int
	at      time.Time
	n       int       // lines of that time
	latest  time.Time // of all lines of the attempt
	met     bool      // by the new stream
}

func newSeenLines() *seenLines { return &seenLines{last: make(map[containerKey]seenLine)} }

func (s *seenLines) add(l nodeapi.LogLine) {
	if l.Lost {
		return
	}
	key := containerKey{l.UID, l.Container}
	last := s.last[key]
	latest := l.Time
	if last.n > 0 && last.attempt == l.Attempt {
		if last.latest.After(latest) {
			latest = last.latest
		}
		if last.at.Equal(l.Time) {
			last.n++
			s.last[key] = last
			return
		}
	}
	s.last[key] = seenLine{attempt: l.Attempt, at: l.Time, n: 1, latest: latest}
}

// again returns what tells the lines of a new stream that were shown before.
func (s *seenLines) again() *seenLines { return &seenLines{last: maps.Clone(s.last)} }

// knows says whether a line was shown before. It must be asked about each line,
// in order.
func (s *seenLines) knows(l nodeapi.LogLine) bool {
	key := containerKey{l.UID, l.Container}
	last, ok := s.last[key]
	switch {
	case l.Lost:
		return ok // that it was told before, or was told anew, matters little
	case !ok:
		return false
	case l.Attempt != last.attempt:
		return l.Attempt < last.attempt
	case l.Time.Equal(last.at) && last.n > 0:
		last.n, last.met = last.n-1, true
		s.last[key] = last
		return true
	case !last.met && !l.Time.After(last.latest):
		return true // the last one shown is still to come
	}
	delete(s.last, key) // from here on all is new
	return false
}
