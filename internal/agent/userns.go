package agent

import (
	"encoding/binary"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/db"
)

const (
	usersBucket = "user-namespaces"
	usersPerPod = 1 << 16
	firstUser   = 1 << 16 // host ids below belong to the host
	maxUserPods = 1 << 14
)

// userRanges hand each pod with hostUsers: false a range of host ids of its own,
// and remember it: a pod's files keep their owners when the agent restarts.
type userRanges struct {
	db *db.DB

	mu    sync.Mutex
	slots map[types.UID]uint32
	used  map[uint32]bool
}

func newUserRanges(d *db.DB) (*userRanges, error) {
	u := &userRanges{db: d, slots: make(map[types.UID]uint32), used: make(map[uint32]bool)}
	all, err := d.All(usersBucket)
	if err != nil {
		return nil, fmt.Errorf("cannot read the user ranges of pods: %w", err)
	}
	for uid, b := range all {
		if len(b) == 4 {
			slot := binary.BigEndian.Uint32(b)
			u.slots[types.UID(uid)], u.used[slot] = slot, true
		}
	}
	return u, nil
}

// mapping is the pod's range; nil: it shares the host's users, or no range is
// free, which podconfig reports.
func (u *userRanges) mapping(pod *corev1.Pod) *runtimeapi.UserNamespace {
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	slot, ok := u.slots[pod.UID]
	for next := uint32(0); !ok && next < maxUserPods; next++ {
		if u.used[next] {
			continue
		}
		slot, ok = next, true
		u.slots[pod.UID], u.used[slot] = slot, true
		u.db.Put(usersBucket, string(pod.UID), binary.BigEndian.AppendUint32(nil, slot))
	}
	if !ok {
		return nil
	}
	ids := []*runtimeapi.IDMapping{{HostId: firstUser + slot*usersPerPod, ContainerId: 0, Length: usersPerPod}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}

// free gives the range of a pod back that is gone.
func (u *userRanges) free(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if slot, ok := u.slots[uid]; ok {
		delete(u.slots, uid)
		delete(u.used, slot)
		u.db.Delete(usersBucket, string(uid))
	}
}
