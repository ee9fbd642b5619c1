package podworker

import (
	"sync"

	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime"
)

// ended is how an action ended.
type ended struct {
	key    lifecycle.Key
	result podruntime.Result
	err    error
}

// mail is what came for a worker since it last looked.
type mail struct {
	desired *Desired // nil: unchanged
	poked   bool     // the runtime may hold something else
	sources bool     // what a failed action lacked may be there
	probed  []lifecycle.Probed
	ended   []ended
}

// inbox collects mail; senders never block. It is safe for concurrent use.
type inbox struct {
	wake chan struct{} // capacity 1: there is mail

	mu   sync.Mutex
	mail mail
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put changes the mail and wakes the worker.
func (b *inbox) put(change func(*mail)) {
	b.mu.Lock()
	change(&b.mail)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take empties the inbox.
func (b *inbox) take() mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mail
	b.mail = mail{}
	return m
}
