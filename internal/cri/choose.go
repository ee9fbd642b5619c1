package cri

import (
	"cmp"
	"slices"
	"time"
)

// DeadLimits say which dead sandboxes and containers are removed. The zero value
// of a field is no limit; with all of them zero, everything stays.
type DeadLimits struct {
	MinAge       time.Duration // what ended less than this ago stays, whatever the other limits say
	MaxAge       time.Duration // what ended longer ago than this goes
	Sandboxes    int           // so many dead sandboxes stay, those that ended last
	Containers   int           // so many dead containers stay, those that ended last
	PerContainer int           // so many dead attempts at one container of a pod stay, those that ended last
}

// grave is a dead sandbox or container.
type grave struct {
	id      string
	sandbox string    // of a container: the sandbox it is in
	of      string    // of a container: what it was an attempt at
	ended   time.Time // of a sandbox: when the last of it ended
}

// chooseDead says which of the dead to remove. A sandbox goes with its containers,
// which are then not listed. It is pure.
func chooseDead(now time.Time, sandboxes, containers []grave, l DeadLimits) (goneSandboxes, goneContainers []string) {
	isGone := make(map[string]bool)
	for _, g := range beyond(now, newestFirst(sandboxes), l, l.Sandboxes) {
		isGone[g.id] = true
		goneSandboxes = append(goneSandboxes, g.id)
	}
	left := slices.DeleteFunc(newestFirst(containers), func(g grave) bool { return isGone[g.sandbox] })
	if l.PerContainer > 0 {
		attempts := make(map[string][]grave)
		for _, g := range left {
			attempts[g.of] = append(attempts[g.of], g)
		}
		tooMany := make(map[string]bool)
		for _, list := range attempts {
			for _, g := range beyond(now, list, l, l.PerContainer) {
				tooMany[g.id] = true
			}
		}
		for _, g := range left {
			if tooMany[g.id] {
				goneContainers = append(goneContainers, g.id)
			}
		}
		left = slices.DeleteFunc(left, func(g grave) bool { return tooMany[g.id] })
	}
	for _, g := range beyond(now, left, l, l.Containers) {
		goneContainers = append(goneContainers, g.id)
	}
	return goneSandboxes, goneContainers
}

// beyond gives those of a list, newest first, that are too old, or too many.
func beyond(now time.Time, list []grave, l DeadLimits, most int) (gone []grave) {
	for i, g := range list {
		age := now.Sub(g.ended)
		tooOld := l.MaxAge > 0 && age > l.MaxAge
		tooMany := most > 0 && i >= most
		if age >= l.MinAge && (tooOld || tooMany) {
			gone = append(gone, g)
		}
	}
	return gone
}

func newestFirst(list []grave) []grave {
	return slices.SortedFunc(slices.Values(list), func(a, b grave) int {
		return cmp.Or(b.ended.Compare(a.ended), cmp.Compare(a.id, b.id))
	})
}
