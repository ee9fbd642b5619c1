package nodeapi

import (
	"sync"
	"time"
)

// activity counts the requests that are being answered.
type activity struct {
	mu   sync.Mutex
	n    int
	last time.Time // when n became 0
	all  sync.WaitGroup
}

// begin notes a request and returns what notes its end.
func (a *activity) begin() (end func()) {
	a.mu.Lock()
	a.n++
	a.mu.Unlock()
	a.all.Add(1)
	return func() {
		a.mu.Lock()
		if a.n--; a.n == 0 {
			a.last = time.Now()
		}
		a.mu.Unlock()
		a.all.Done()
	}
}

func (a *activity) idleSince() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n > 0 {
		return time.Time{}
	}
	return a.last
}

func (a *activity) wait() { a.all.Wait() }
