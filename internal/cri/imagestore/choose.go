package imagestore

import (
	"cmp"
	"slices"
	"time"
)

// Thresholds say when images are removed, as the kubelet's settings do.
type Thresholds struct {
	HighPercent int           // removal starts when the disk is at least this full; 100 or more: never
	LowPercent  int           // and goes on until it is no fuller than this
	MinAge      time.Duration // images known or last used for less than this stay
	MaxAge      time.Duration // images unused for longer go whatever the disk; 0: never
}

// DefaultThresholds are the kubelet's.
var DefaultThresholds = Thresholds{HighPercent: 85, LowPercent: 80, MinAge: 2 * time.Minute}

// Candidate is what Choose needs to know of an image.
type Candidate struct {
	ID        string
	SizeBytes int64
	Pinned    bool
	Known     time.Time // since when it is here
	LastUsed  time.Time // pulled again or made a container of; zero: never since it is here
}

// DiskUsage is the state of the disk and of the images on it at a moment.
type DiskUsage struct {
	Now            time.Time
	CapacityBytes  int64
	AvailableBytes int64
	Images         []Candidate
}

// Victim is an image to remove, and why.
type Victim struct {
	ID     string
	Reason string // "disk" or "age"
}

// Choose says which images to remove: first those unused for longer than
// MaxAge, then, if the disk is fuller than HighPercent, the least recently used
// until enough would be free. Images in use, pinned ones and ones known or used
// for less than MinAge are never chosen. It is pure.
func Choose(usage DiskUsage, inUse func(id string) bool, t Thresholds) []Victim {
	idleSince := func(c Candidate) time.Time {
		if c.LastUsed.After(c.Known) {
			return c.LastUsed
		}
		return c.Known
	}
	free := make([]Candidate, 0, len(usage.Images))
	for _, c := range usage.Images {
		if !c.Pinned && !inUse(c.ID) && usage.Now.Sub(idleSince(c)) >= t.MinAge {
			free = append(free, c)
		}
	}
	slices.SortFunc(free, func(a, b Candidate) int {
		return cmp.Or(idleSince(a).Compare(idleSince(b)), a.Known.Compare(b.Known), cmp.Compare(a.ID, b.ID))
	})

	var victims []Victim
	need := bytesToFree(usage, t)
	for _, c := range free {
		switch {
		case t.MaxAge > 0 && usage.Now.Sub(idleSince(c)) > t.MaxAge:
			victims = append(victims, Victim{ID: c.ID, Reason: "age"})
		case need > 0:
			victims = append(victims, Victim{ID: c.ID, Reason: "disk"})
		default:
			continue
		}
		need -= c.SizeBytes
	}
	return victims
}

// bytesToFree is how much must go to reach LowPercent; 0 below HighPercent.
func bytesToFree(usage DiskUsage, t Thresholds) int64 {
	if usage.CapacityBytes <= 0 || t.HighPercent >= 100 {
		return 0
	}
	used := usage.CapacityBytes - usage.AvailableBytes
	if used*100 < usage.CapacityBytes*int64(t.HighPercent) {
		return 0
	}
	return used - usage.CapacityBytes*int64(t.LowPercent)/100
}
