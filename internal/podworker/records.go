package podworker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/db"
	"github.com/berth-run/berth/internal/lifecycle"
)

const historyBucket = "histories"

// ErrTorn says that the history of a pod is there and cannot be read.
var ErrTorn = errors.New("torn history")

// Histories are the Records in a database. Safe for concurrent use.
type Histories struct{ db *db.DB }

// NewHistories returns the histories kept in d.
func NewHistories(d *db.DB) *Histories { return &Histories{db: d} }

// Load returns the history of a pod; the zero History if there is none, and
// with ErrTorn if it cannot be read.
func (s *Histories) Load(uid types.UID) (lifecycle.History, error) {
	var h lifecycle.History
	data, err := s.db.Get(historyBucket, string(uid))
	if err != nil || data == nil {
		return h, err
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return lifecycle.History{}, fmt.Errorf("cannot read the history of pod %s: %w: %w", uid, ErrTorn, err)
	}
	return h, nil
}

// Save keeps the history; it is on disk after the next Sync, or soon.
func (s *Histories) Save(uid types.UID, h lifecycle.History) error {
	data, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("cannot write the history of pod %s: %w", uid, err)
	}
	s.db.Put(historyBucket, string(uid), data)
	return nil
}

// Sync returns when all that was saved before is on disk.
func (s *Histories) Sync(ctx context.Context) error { return s.db.Sync(ctx) }

// Delete forgets the history of a pod.
func (s *Histories) Delete(uid types.UID) { s.db.Delete(historyBucket, string(uid)) }

// Terminal says whether the pod was last reported as Succeeded or Failed.
func (s *Histories) Terminal(uid types.UID) bool {
	h, err := s.Load(uid)
	return err == nil && h.Status != nil &&
		(h.Status.Phase == corev1.PodSucceeded || h.Status.Phase == corev1.PodFailed)
}
