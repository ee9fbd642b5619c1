package probe

import "time"

// ringSize is how many checks of a probe are remembered.
const ringSize = 8

// maxOutput limits what is kept of one check's output, in bytes.
const maxOutput = 512

// Check is one check that was made.
type Check struct {
	At     time.Time
	Took   time.Duration
	OK     bool
	Output string // what the target said, or the error; at most 512 bytes
	// Warning says that it counts as success and that something is odd.
	Warning bool
	// Early says that it came between ticks, to find out soon that a container
	// is up. When it fails it counts for nothing.
	Early bool
	// Void says that it could not be carried out and counts for nothing.
	Void bool
}

// ring holds the last checks. The zero value is empty and takes no memory.
type ring struct {
	checks []Check
	next   int // where the next one goes, once checks is full
}

func (r *ring) add(c Check) {
	if len(r.checks) == 0 {
		r.checks = append(r.checks, c)
		return
	}
	newest := (r.next + len(r.checks) - 1) % len(r.checks)
	if r.checks[newest].Output == c.Output {
		c.Output = r.checks[newest].Output // share the memory
	}
	if len(r.checks) < ringSize {
		r.checks = append(r.checks, c)
		return
	}
	r.checks[r.next] = c
	r.next = (r.next + 1) % ringSize
}

// list returns the checks, the oldest first.
func (r *ring) list() []Check {
	return append(append([]Check(nil), r.checks[r.next:]...), r.checks[:r.next]...)
}
