package nodeapi

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// errFollowed says that a pod goes on because another run follows it.
var errFollowed = errors.New("another berth run follows the pod")

// errEnded says that a pod need not be asked to end.
var errEnded = errors.New("the pod has ended")

// followers are the runs that watch, and the pods that each follows. The zero
// value is ready to use, by several goroutines.
type followers struct {
	mu   sync.Mutex
	runs map[string]*follower
}

type follower struct {
	watches int
	pods    map[types.UID]bool
}

// joinTime is how long runs that lost their agent have to find the next one. Until
// then it can't say that nobody else follows a pod.
const joinTime = 500 * time.Millisecond

// awaitRuns returns when an agent that began at that time knows which runs follow
// its pods, or ctx ends.
func awaitRuns(ctx context.Context, began time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(began.Add(joinTime))):
	}
}

// begin notes a watch of a run and returns what notes its end.
func (f *followers) begin(run string) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runs == nil {
		f.runs = make(map[string]*follower)
	}
	r := f.runs[run]
	if r == nil {
		r = &follower{pods: make(map[types.UID]bool)}
		f.runs[run] = r
	}
	r.watches++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.watches--; r.watches == 0 {
			delete(f.runs, run)
		}
	}
}

// follow notes that a run, if it watches, follows a pod.
func (f *followers) follow(run string, uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.runs[run]; r != nil {
		r.pods[uid] = true
	}
}

// follows says whether a run follows any pod.
func (f *followers) follows() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.runs {
		if len(r.pods) > 0 {
			return true
		}
	}
	return false
}

// release notes that a run follows a pod no more, and says whether others do.
// Of several that let go at once, exactly the last is told that none does.
func (f *followers) release(run string, uid types.UID) (followed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, r := range f.runs {
		if name == run {
			delete(r.pods, uid)
		} else if r.pods[uid] {
			followed = true
		}
	}
	return followed
}
