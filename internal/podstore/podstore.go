// Package podstore keeps the desired pods of the node by uid: what should run,
// what is to be deleted, and what must stop for a reason of the node's. It is
// the one writer of those facts; others read views and subscribe to changes.
//
// It also gives pods of files their uids, and remembers them on disk: a pod of
// the same name and content keeps its uid over restarts of berth for as long as
// it has not ended, so that its containers are taken over and not made anew;
// anything else is a new pod, and the old one is deleted.
//
// A pod that has ended counts as the same all the same while its result is owed:
// somebody awaits its end and was not told (Await, Told), or it was taken over
// from a former process and ended after that, where nobody could see it. So a
// pod never runs twice because of who was killed when.
//
// It does no I/O but writing its records, and starts nothing.
package podstore

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/lifecycle"
)

// Desired is what is wanted of one pod. It is read-only, with all it points to.
type Desired struct {
	// Pod has a deletion timestamp when its end is asked for.
	Pod *corev1.Pod
	// Stop asks for its end for a reason of the node's; nil: it may stay.
	Stop *lifecycle.Stop
	// Reject says that it may not run here; nil: it was admitted.
	Reject *lifecycle.Reject
}

// Records is where the store remembers pods. Values put there may become
// durable a little later, in order.
type Records interface {
	All(bucket string) (map[string][]byte, error)
	Put(bucket, name string, value []byte)
	Delete(bucket, name string)
}

// Config says how a Store works. The zero value of an optional field means its
// default.
type Config struct {
	Records Records // required
	// Ended says whether a pod was last reported as Succeeded or Failed: it is
	// not taken up again. Required.
	Ended func(uid types.UID) bool
	// Admit chooses whether a new pod may run beside those that have not ended and
	// are not to end, the oldest first; nil: it may. It is asked before anything of
	// the pod begins, and must only choose. Default: all may.
	Admit  func(pod *corev1.Pod, others iter.Seq[*corev1.Pod]) *lifecycle.Reject
	NewUID func() types.UID // default: random
	Now    func() time.Time // default: time.Now
	Log    *slog.Logger     // default: discard
}

// Store holds the desired pods. It is safe for concurrent use.
type Store struct {
	cfg Config

	mu   sync.Mutex
	pods map[types.UID]*entry
	subs map[*Subscription]bool
}

// entry is one pod; the Desired in it is replaced and never changed.
type entry struct {
	desired Desired
	hash    string
	// left says that the pod is known from a former process only, and that
	// nobody has asked for it since.
	left bool
	// awaited says that somebody waits for the pod's end and was not told of it.
	awaited bool
	// crossed says that a former process left the pod before it ended, and that
	// nobody has asked for it since.
	crossed bool
}

// owed says that the end of the pod is still to be told.
func (e *entry) owed() bool { return e.awaited || e.crossed }

// record is an entry on disk.
type record struct {
	Hash   string            `json:"hash"`
	Pod    *corev1.Pod       `json:"pod"`
	Stop   *lifecycle.Stop   `json:"stop,omitempty"`
	Reject *lifecycle.Reject `json:"reject,omitempty"`
	// Awaited is entry.awaited.
	Awaited bool `json:"awaited,omitempty"`
}

const bucket = "pods"

// New reads what a former process remembered. Those pods are Leftover until
// they are Set again, unless their deletion was asked for.
func New(cfg Config) (*Store, error) {
	var errs []error
	if cfg.Records == nil {
		errs = append(errs, errors.New("podstore: Config.Records is required"))
	}
	if cfg.Ended == nil {
		errs = append(errs, errors.New("podstore: Config.Ended is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Admit == nil {
		cfg.Admit = func(*corev1.Pod, iter.Seq[*corev1.Pod]) *lifecycle.Reject { return nil }
	}
	if cfg.NewUID == nil {
		cfg.NewUID = func() types.UID { return types.UID(uuid.NewString()) }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg, pods: make(map[types.UID]*entry), subs: make(map[*Subscription]bool)}
	all, err := cfg.Records.All(bucket)
	if err != nil {
		return nil, fmt.Errorf("cannot read the pods of the last run: %w", err)
	}
	for uid, data := range all {
		var r record
		if err := json.Unmarshal(data, &r); err != nil || r.Pod == nil || string(r.Pod.UID) != uid {
			// Its containers, if there are any, are found in the runtime.
			cfg.Log.Error("the record of a pod is damaged and is dropped", "uid", uid, "err", err)
			cfg.Records.Delete(bucket, uid)
			continue
		}
		d := Desired{Pod: r.Pod, Stop: r.Stop, Reject: r.Reject}
		// A deletion that was asked for goes on, whoever asks for what now.
		left := r.Pod.DeletionTimestamp == nil
		s.pods[types.UID(uid)] = &entry{
			hash: r.Hash, desired: d, left: left, awaited: r.Awaited, crossed: left && !cfg.Ended(types.UID(uid)),
		}
	}
	return s, nil
}

// Set asks for a pod, and returns its uid. A pod without a uid is the one of
// the same name and content that has not ended, in this process or a former
// one, or whose end is owed; otherwise it is a new pod, and the one of its name is deleted. A pod with
// a uid is taken as it is. The store keeps pod: do not change it afterwards.
func (s *Store) Set(pod *corev1.Pod) (types.UID, error) {
	hash, err := contentHash(pod)
	if err != nil {
		return "", fmt.Errorf("cannot take pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod.UID == "" {
		if uid, e := s.same(pod, hash); e != nil {
			e.crossed = false
			if e.left {
				e.left = false
				s.changed(uid)
			}
			return uid, nil
		}
		s.deleteNamesakes(pod)
		pod = pod.DeepCopy()
		pod.UID = s.cfg.NewUID()
		if pod.CreationTimestamp.IsZero() {
			pod.CreationTimestamp = metav1.NewTime(s.cfg.Now())
		}
	}
	e, ok := s.pods[pod.UID]
	if !ok {
		e = &entry{}
		e.desired.Reject = s.cfg.Admit(pod, s.staying())
		s.pods[pod.UID] = e
	}
	pod = keepDeletion(e.desired.Pod, pod)
	e.left, e.hash = false, hash
	e.desired = Desired{Pod: pod, Stop: e.desired.Stop, Reject: e.desired.Reject}
	s.write(e)
	s.changed(pod.UID)
	return pod.UID, nil
}

// staying are the pods that run or will, the oldest first. The caller holds mu.
func (s *Store) staying() iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		all := slices.SortedFunc(maps.Values(s.pods), func(a, b *entry) int { return byAge(a.desired.Pod, b.desired.Pod) })
		for _, e := range all {
			if !e.desired.ending() && !s.cfg.Ended(e.desired.Pod.UID) && !yield(e.desired.Pod) {
				return
			}
		}
	}
}

func byAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// same finds the pod that a pod without uid is.
func (s *Store) same(pod *corev1.Pod, hash string) (types.UID, *entry) {
	for uid, e := range s.pods {
		p := e.desired.Pod
		if p.Namespace == pod.Namespace && p.Name == pod.Name && e.hash == hash &&
			p.DeletionTimestamp == nil && e.desired.Stop == nil && e.desired.Reject == nil && (e.owed() || !s.cfg.Ended(uid)) {
			return uid, e
		}
	}
	return "", nil
}

// Await says that somebody waits for the end of a pod: until Told, it counts as
// the same pod even when it has ended.
func (s *Store) Await(uid types.UID) { s.setAwaited(uid, true) }

// Told says that the end of a pod was told to those who waited for it.
func (s *Store) Told(uid types.UID) { s.setAwaited(uid, false) }

func (s *Store) setAwaited(uid types.UID, awaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pods[uid]
	if !ok {
		return
	}
	if !awaited {
		e.crossed = false
	}
	if e.awaited != awaited {
		e.awaited = awaited
		s.write(e)
	}
}

func (s *Store) deleteNamesakes(pod *corev1.Pod) {
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		p := s.pods[uid].desired.Pod
		if p.Namespace == pod.Namespace && p.Name == pod.Name {
			s.delete(uid, nil)
		}
	}
}

// keepDeletion returns the pod as newly asked for, without losing the deletion
// that was asked for before, nor letting its grace grow.
func keepDeletion(old, pod *corev1.Pod) *corev1.Pod {
	if old == nil || old.DeletionTimestamp == nil {
		return pod
	}
	if pod.DeletionTimestamp != nil && graceOf(pod) <= graceOf(old) {
		return pod
	}
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = old.DeletionTimestamp
	pod.DeletionGracePeriodSeconds = old.DeletionGracePeriodSeconds
	return pod
}

// graceOf is the grace period of a deleted pod, in seconds.
func graceOf(pod *corev1.Pod) int64 {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// Delete asks for the end of a pod, with this grace period in seconds; nil: the
// pod's own. A second call can only shorten it. It says whether the pod is known.
func (s *Store) Delete(uid types.UID, graceSeconds *int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delete(uid, graceSeconds)
}

func (s *Store) delete(uid types.UID, graceSeconds *int64) bool {
	e, ok := s.pods[uid]
	if !ok {
		return false
	}
	old := e.desired.Pod
	pod := old.DeepCopy()
	pod.DeletionGracePeriodSeconds = graceSeconds
	grace := max(graceOf(pod), 0)
	if old.DeletionTimestamp != nil && grace >= graceOf(old) {
		return true
	}
	// As in the API: the timestamp is when the grace period ends.
	at := metav1.NewTime(s.cfg.Now().Add(time.Duration(grace) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	e.desired.Pod, e.left = pod, false
	s.write(e)
	s.changed(uid)
	return true
}

// Stop asks for the end of a pod for a reason of the node's. The first reason
// stays; a second call can only shorten the grace. It says whether the pod is
// known.
func (s *Store) Stop(uid types.UID, stop lifecycle.Stop) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pods[uid]
	if !ok {
		return false
	}
	if old := e.desired.Stop; old != nil {
		if stop.Grace == nil || (old.Grace != nil && *stop.Grace >= *old.Grace) {
			return true
		}
		shorter := *old
		shorter.Grace = stop.Grace
		stop = shorter
	}
	e.desired.Stop = &stop
	s.write(e)
	s.changed(uid)
	return true
}

// Reject says that a pod may not run here. It says whether the pod is known.
func (s *Store) Reject(uid types.UID, reject lifecycle.Reject) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pods[uid]
	if !ok {
		return false
	}
	if e.desired.Reject == nil {
		e.desired.Reject = &reject
		s.write(e)
		s.changed(uid)
	}
	return true
}

// Forget drops a deleted pod of which nothing is left.
func (s *Store) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pods[uid]; !ok {
		return
	}
	delete(s.pods, uid)
	s.cfg.Records.Delete(bucket, string(uid))
	s.changed(uid)
}

// write remembers an entry on disk.
func (s *Store) write(e *entry) {
	data, err := json.Marshal(record{
		Hash: e.hash, Pod: e.desired.Pod, Stop: e.desired.Stop, Reject: e.desired.Reject, Awaited: e.awaited,
	})
	if err != nil {
		panic(fmt.Sprintf("podstore: a pod that was decoded cannot be encoded: %v", err))
	}
	s.cfg.Records.Put(bucket, string(e.desired.Pod.UID), data)
}
