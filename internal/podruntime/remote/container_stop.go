package remote

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/berth-run/berth/internal/format"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podconfig"
)

// stopCalls remembers which containers were sent their stop signal, so that a
// shortened grace period sends no second one. Safe for concurrent use.
type stopCalls struct {
	mu       sync.Mutex
	signaled map[string]bool
}

func newStopCalls() *stopCalls { return &stopCalls{signaled: make(map[string]bool)} }

// first says whether the container has not been signaled, and notes that it is.
func (s *stopCalls) first(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.signaled[id]
	s.signaled[id] = true
	return !was
}

func (s *stopCalls) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.signaled, id)
}

// stopContainer sends the stop signal, waits for the end until a.Until, and
// kills. CRI counts whole seconds, so the kill is a call of its own.
func (r *Runtime) stopContainer(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) error {
	if left := time.Until(a.Until); left > 0 {
		ended, err := r.askToStop(ctx, pod, a, left)
		if ended || err != nil {
			return err
		}
	}
	if err := r.cfg.Service.StopContainer(ctx, a.ContainerID, 0); err != nil && !crierrors.IsNotFound(err) {
		return fmt.Errorf("cannot kill container %s: %w", a.Container, err)
	}
	return nil
}

// askToStop gives the container its signal and its time; false: time is up.
func (r *Runtime) askToStop(ctx context.Context, pod *corev1.Pod, a lifecycle.Action, left time.Duration) (ended bool, err error) {
	if !r.calls.first(a.ContainerID) {
		return r.awaitEnd(ctx, pod, a)
	}
	patient, cancel := context.WithDeadline(ctx, a.Until)
	defer cancel()
	// Rounded up, so that it is not the runtime that kills.
	seconds := int64((left+time.Second-1)/time.Second) + 1
	err = r.cfg.Service.StopContainer(patient, a.ContainerID, seconds)
	switch {
	case err == nil || crierrors.IsNotFound(err):
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case patient.Err() != nil:
		return false, nil
	}
	// It is not known whether the signal was sent; a second one does less harm
	// than none.
	r.calls.forget(a.ContainerID)
	return false, fmt.Errorf("cannot stop container %s: %w", a.Container, err)
}

// awaitEnd waits for the end of a container that was signaled before; false:
// time is up.
func (r *Runtime) awaitEnd(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) (ended bool, err error) {
	p := r.seen.hold(pod.UID)
	defer r.seen.drop(pod.UID, p)
	until := time.NewTimer(time.Until(a.Until))
	defer until.Stop()
	again := time.NewTicker(time.Second) // an event may be lost
	defer again.Stop()
	for {
		changed := r.seen.change(p)
		response, err := r.cfg.Service.ContainerStatus(ctx, a.ContainerID, false)
		if crierrors.IsNotFound(err) || response.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("cannot stop container %s: %w", a.Container, err)
		}
		select {
		case <-changed:
		case <-again.C:
		case <-until.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// removeContainer removes a dead container. Its log stays, and that of the
// attempt before; older ones go.
func (r *Runtime) removeContainer(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) error {
	call, done := r.making(ctx)
	defer done()
	if err := r.cfg.Service.RemoveContainer(call, a.ContainerID); err != nil && !crierrors.IsNotFound(err) {
		return fmt.Errorf("cannot remove container %s: %w", a.Container, err)
	}
	r.calls.forget(a.ContainerID)
	if pod.Name == "" {
		return nil // an orphan without a name has no log folder that is known
	}
	dir := filepath.Join(podconfig.LogDirectory(pod, r.cfg.Facts(pod).LogRoot), a.Container)
	if err := removeOldLogs(dir); err != nil {
		r.cfg.Log.Warn("cannot remove old logs", "pod", format.Pod(pod), "container", a.Container, "err", err)
	}
	return nil
}

// keptLogs is of how many attempts the logs are kept: the last, and the one
// before for `logs --previous`.
const keptLogs = 2

// removeOldLogs removes the logs, rotated ones too, of all but the last attempts
// in a container's log folder: 3.log, 3.log.20260102-150405.gz.
func removeOldLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	files := make(map[int][]string)
	var attempts []int
	for _, e := range entries {
		number, _, ok := strings.Cut(e.Name(), ".log")
		attempt, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		if files[attempt] == nil {
			attempts = append(attempts, attempt)
		}
		files[attempt] = append(files[attempt], e.Name())
	}
	slices.Sort(attempts)
	for _, attempt := range attempts[:max(len(attempts)-keptLogs, 0)] {
		for _, name := range files[attempt] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}
