package podstore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// contentHash is equal for pods that a user would call the same: same name,
// labels, annotations, finalizers and spec.
func contentHash(pod *corev1.Pod) (string, error) {
	data, err := json.Marshal(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   pod.Namespace,
			Name:        pod.Name,
			Labels:      pod.Labels,
			Annotations: pod.Annotations,
		},
		Spec: pod.Spec,
	})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16]), nil
}

// Get returns what is wanted of a pod; false: the pod is not known.
func (s *Store) Get(uid types.UID) (Desired, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pods[uid]
	if !ok {
		return Desired{}, false
	}
	return e.desired, true
}

// List returns all pods that somebody wants, or wants to end: those that are to
// end first, then by namespace, name and age.
func (s *Store) List() []Desired { return s.list(false) }

// Leftover returns the pods of a former process that nobody has asked for
// since. Delete ends them.
func (s *Store) Leftover() []Desired { return s.list(true) }

func (s *Store) list(left bool) []Desired {
	s.mu.Lock()
	var all []Desired
	for _, e := range s.pods {
		if e.left == left {
			all = append(all, e.desired)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b Desired) int {
		if a.ending() != b.ending() {
			if a.ending() {
				return -1
			}
			return 1
		}
		if c := strings.Compare(a.Pod.Namespace, b.Pod.Namespace); c != 0 {
			return c
		}
		if c := strings.Compare(a.Pod.Name, b.Pod.Name); c != 0 {
			return c
		}
		if c := a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(string(a.Pod.UID), string(b.Pod.UID))
	})
	return all
}

// ending says that nothing of the pod will start any more.
func (d Desired) ending() bool {
	return d.Pod.DeletionTimestamp != nil || d.Stop != nil || d.Reject != nil
}

// Subscription tells of changes. Use it from one goroutine.
type Subscription struct {
	store *Store
	// C holds a value when Changed has something to tell.
	C <-chan struct{}

	wake    chan struct{}
	changed map[types.UID]bool // guarded by store.mu
}

// Subscribe returns a Subscription that begins with all pods of List. Close it
// when done.
func (s *Store) Subscribe() *Subscription {
	wake := make(chan struct{}, 1)
	sub := &Subscription{store: s, C: wake, wake: wake, changed: make(map[types.UID]bool)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs[sub] = true
	for uid, e := range s.pods {
		if !e.left {
			sub.changed[uid] = true
		}
	}
	sub.tell()
	return sub
}

// Close ends the subscription.
func (sub *Subscription) Close() {
	sub.store.mu.Lock()
	defer sub.store.mu.Unlock()
	delete(sub.store.subs, sub)
}

// Changed returns the pods that changed since the last call, those that are to
// end first; many changes of one pod are one. A pod that Get does not know any
// more was forgotten.
func (sub *Subscription) Changed() []types.UID {
	s := sub.store
	s.mu.Lock()
	defer s.mu.Unlock()
	uids := make([]types.UID, 0, len(sub.changed))
	for uid := range sub.changed {
		uids = append(uids, uid)
	}
	clear(sub.changed)
	ending := func(uid types.UID) bool {
		e, ok := s.pods[uid]
		return !ok || e.desired.ending()
	}
	slices.SortFunc(uids, func(a, b types.UID) int {
		if ending(a) != ending(b) {
			if ending(a) {
				return -1
			}
			return 1
		}
		return strings.Compare(string(a), string(b))
	})
	return uids
}

func (sub *Subscription) tell() {
	select {
	case sub.wake <- struct{}{}:
	default:
	}
}

// changed notes a change for all subscriptions. The caller holds mu.
func (s *Store) changed(uid types.UID) {
	for sub := range s.subs {
		sub.changed[uid] = true
		sub.tell()
	}
}
