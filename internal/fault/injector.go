package fault

import (
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/lifecycle"
)

// Effect is what faults do to one action.
type Effect struct {
	// Fail says that the action fails.
	Fail bool
	// Slow is how much longer it takes.
	Slow time.Duration
	// Late says that it takes effect even when it is cancelled.
	Late bool
}

// Injector hands out faults to those who play the world. It is safe for
// concurrent use, and deterministic when used by one goroutine.
type Injector struct {
	began time.Time

	mu     sync.Mutex
	faults []Fault // what has not been used up
}

// NewInjector returns an Injector for a run that began at began.
func NewInjector(began time.Time, faults []Fault) *Injector {
	return &Injector{began: began, faults: slices.Clone(faults)}
}

// Action says what the faults do to an action that begins at now, and uses up
// those that strike only so often.
func (in *Injector) Action(now time.Time, kind lifecycle.ActionKind, container string) Effect {
	in.mu.Lock()
	defer in.mu.Unlock()
	var e Effect
	in.each(now, func(f *Fault) (used bool) {
		if f.Action != kind || (f.Container != "" && f.Container != container) {
			return false
		}
		switch {
		case f.Kind == Slow:
			e.Slow += f.For
		case f.Kind == Fail && !e.Fail:
			e.Fail = true
			return true
		case f.Kind == LateEffect && !e.Late:
			e.Late = true
			return true
		}
		return false
	})
	return e
}

// Take uses up one fault of the kind that has come by now and says which.
func (in *Injector) Take(now time.Time, kind Kind) (Fault, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var found Fault
	ok := false
	in.each(now, func(f *Fault) (used bool) {
		if ok || f.Kind != kind {
			return false
		}
		found, ok = *f, true
		return true
	})
	return found, ok
}

// Active says whether a lasting fault of the kind holds at now.
func (in *Injector) Active(now time.Time, kind Kind) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	since := now.Sub(in.began)
	return slices.ContainsFunc(in.faults, func(f Fault) bool {
		return f.Kind == kind && since >= f.After && (f.For == 0 || since < f.After+f.For)
	})
}

// each calls fn for each fault that has come, and counts down those it used.
func (in *Injector) each(now time.Time, fn func(*Fault) (used bool)) {
	since := now.Sub(in.began)
	in.faults = slices.DeleteFunc(in.faults, func(f Fault) bool { return f.Times < 0 })
	for i := range in.faults {
		f := &in.faults[i]
		if since < f.After || f.Times < 0 || !fn(f) {
			continue
		}
		if f.Times--; f.Times <= 0 {
			f.Times = -1 // used up
		}
	}
}
