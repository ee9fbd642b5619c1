package remote

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/lifecycle"
)

// sightings are the last observations of all pods. They are safe for concurrent
// use; mu is held for moments only.
type sightings struct {
	mu   sync.Mutex
	pods map[types.UID]*sighting
	// owner says whose a sandbox or container is, for events that do not say.
	owner map[string]types.UID
}

// sighting is what was last seen of one pod. Its fields are guarded by
// sightings.mu, and the values in them are replaced, never changed.
type sighting struct {
	looking sync.Mutex // held while the runtime is asked; before sightings.mu
	users   int        // observers that hold it

	now   uint64    // counts the reasons to look again
	upTo  uint64    // the reasons that the last look covered
	at    time.Time // of the last look, with its monotonic reading
	boxes map[string]lifecycle.Sandbox
	conts map[string]lifecycle.Container
	// changed is closed at the next reason to look again.
	changed chan struct{}
}

func newSightings() *sightings {
	return &sightings{pods: make(map[types.UID]*sighting), owner: make(map[string]types.UID)}
}

// hold returns the sighting of a pod, new if there is none, and keeps it until
// drop.
func (s *sightings) hold(uid types.UID) *sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.pods[uid]
	if !ok {
		p = &sighting{now: 1, changed: make(chan struct{})}
		s.pods[uid] = p
	}
	p.users++
	return p
}

// drop lets the sighting go; one that nobody holds and that saw nothing is
// forgotten.
func (s *sightings) drop(uid types.UID, p *sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.users--
	if p.users == 0 && len(p.boxes) == 0 && len(p.conts) == 0 {
		delete(s.pods, uid)
	}
}

// outdate says that what was seen of the pod may be old.
func (s *sightings) outdate(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outdateLocked(uid)
}

func (s *sightings) outdateLocked(uid types.UID) {
	if p, ok := s.pods[uid]; ok {
		p.now++
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// outdateAll says so of all pods, and returns them.
func (s *sightings) outdateAll() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	uids := make([]types.UID, 0, len(s.pods))
	for uid := range s.pods {
		s.outdateLocked(uid)
		uids = append(uids, uid)
	}
	return uids
}

// ownerOf says whose the sandbox or container is; empty: not known.
func (s *sightings) ownerOf(id string) types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner[id]
}

// look is what the last look found, for those who compare and add.
type look struct {
	fresh bool // it is not outdated
	upTo  uint64
	at    time.Time
	boxes map[string]lifecycle.Sandbox
	conts map[string]lifecycle.Container
}

func (s *sightings) last(p *sighting) look {
	s.mu.Lock()
	defer s.mu.Unlock()
	return look{fresh: p.upTo == p.now && !p.at.IsZero(), upTo: p.now, at: p.at, boxes: p.boxes, conts: p.conts}
}

// keep stores what a look that began with l.upTo found.
func (s *sightings) keep(uid types.UID, p *sighting, l look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range p.boxes {
		delete(s.owner, id)
	}
	for id := range p.conts {
		delete(s.owner, id)
	}
	for id := range l.boxes {
		s.owner[id] = uid
	}
	for id := range l.conts {
		s.owner[id] = uid
	}
	p.upTo, p.at, p.boxes, p.conts = l.upTo, l.at, l.boxes, l.conts
}

// change is the channel that is closed at the next reason to look at the pod.
func (s *sightings) change(p *sighting) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.changed
}

// states lists what each pod was seen to hold: by pod, the state of each
// sandbox and container by id.
func (s *sightings) states() map[types.UID]map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[types.UID]map[string]string, len(s.pods))
	for uid, p := range s.pods {
		states := make(map[string]string, len(p.boxes)+len(p.conts))
		for id, b := range p.boxes {
			states[id] = boxState(b.Ready)
		}
		for id, c := range p.conts {
			states[id] = string(c.State)
		}
		all[uid] = states
	}
	return all
}

func boxState(ready bool) string {
	if ready {
		return "Ready"
	}
	return "NotReady"
}

// same says whether two pods' states are equal.
func same(a, b map[string]string) bool { return maps.Equal(a, b) }
