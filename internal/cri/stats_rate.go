package cri

import (
	"sync"
	"time"
)

// rateWindow is the shortest time that a rate is taken over: of less, the
// kernel's own steps would show.
const rateWindow = time.Second

// cpuRate makes a rate of use from readings that others asked for. The zero
// value is ready.
type cpuRate struct {
	mu    sync.Mutex // guards what follows
	at    time.Time  // of the reading that the next rate begins with; zero: none
	usage time.Duration
	rate  *uint64 // the last one; nil: none
}

// read takes a reading in and gives the rate between it and an earlier one, in
// billionths of a core; nil if there is none yet. Readings that follow each
// other closely share one rate.
func (r *cpuRate) read(now time.Time, usage time.Duration) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	window := now.Sub(r.at)
	switch {
	case r.at.IsZero(), usage < r.usage: // the group is another
		r.at, r.usage, r.rate = now, usage, nil
	case window >= rateWindow:
		rate := uint64(float64(usage-r.usage) / window.Seconds())
		r.at, r.usage, r.rate = now, usage, &rate
	}
	return r.rate
}
