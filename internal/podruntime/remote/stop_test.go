package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

func stopAction(after time.Duration) lifecycle.Action {
	return lifecycle.Action{Kind: lifecycle.StopContainer, Container: "app", ContainerID: "app-u1", Until: time.Now().Add(after)}
}

// stubborn is a container that ends only when it is killed.
func stubborn(f *fakeCRI) {
	f.onStop = func(ctx context.Context, _ string, timeout int64) error {
		if timeout == 0 {
			f.put(simplePod(), exited)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(timeout) * time.Second):
			return errors.New("the runtime killed by itself")
		}
	}
}

// CRI counts seconds; the kill comes to the moment all the same.
func TestKillsToTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCRI()
		r := onFake(t, f)
		f.put(simplePod(), running)
		stubborn(f)
		began := time.Now()
		if _, err := r.Do(t.Context(), simplePod(), stopAction(1300*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 1300*time.Millisecond {
			t.Errorf("killed after %s", took)
		}
		if !slices.Equal(f.stops, []int64{3, 0}) {
			t.Errorf("calls with time-outs %v", f.stops)
		}
	})
}

// A grace period that is shortened while the container is stopping sends no
// second signal; one that is over kills at once.
func TestShorterGraceSendsNoSecondSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCRI()
		r := onFake(t, f)
		f.put(simplePod(), running)
		stubborn(f)
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() {
			_, err := r.Do(ctx, simplePod(), stopAction(time.Hour))
			first <- err
		}()
		time.Sleep(time.Second)
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled stop says %v", err)
		}
		began := time.Now()
		if _, err := r.Do(t.Context(), simplePod(), stopAction(5*time.Second)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("killed after %s", took)
		}
		if !slices.Equal(f.stops, []int64{3601, 0}) {
			t.Errorf("calls with time-outs %v", f.stops)
		}
	})
}

// A container that ends by itself while a second, shorter stop waits is noticed.
func TestSecondStopNoticesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCRI()
		r := onFake(t, f)
		f.put(simplePod(), running)
		r.calls.first("app-u1")
		time.AfterFunc(2*time.Second, func() {
			f.put(simplePod(), exited)
			r.seen.outdate("u1") // an event
		})
		began := time.Now()
		if _, err := r.Do(t.Context(), simplePod(), stopAction(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("noticed after %s", took)
		}
		if len(f.stops) != 0 {
			t.Errorf("calls with time-outs %v", f.stops)
		}
	})
}

func TestLogsOfOldAttemptsGo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"0.log", "1.log", "1.log.20260101-000000.gz", "9.log", "10.log", "10.log.20260101-000000", "other", "x.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeOldLogs(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"10.log", "10.log.20260101-000000", "9.log", "other", "x.log"}; !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
	if err := removeOldLogs(filepath.Join(dir, "absent")); err != nil {
		t.Error(err)
	}
}

// The logs of a pod that ended stay until it is deleted, and then go.
func TestLogsStayUntilThePodIsDeleted(t *testing.T) {
	r := onFake(t, newFakeCRI())
	pod := simplePod()
	dir := filepath.Join(r.cfg.Facts(pod).LogRoot, "default_web_u1")
	if err := os.MkdirAll(filepath.Join(dir, "app"), 0o700); err != nil {
		t.Fatal(err)
	}
	leftovers := func(pod *corev1.Pod) bool {
		o, err := r.Observe(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		return o.Leftovers
	}
	remove := func(pod *corev1.Pod) {
		if _, err := r.Do(t.Context(), pod, lifecycle.Action{Kind: lifecycle.RemovePod}); err != nil {
			t.Fatal(err)
		}
	}
	remove(pod)
	if _, err := os.Stat(dir); err != nil || leftovers(pod) {
		t.Errorf("after its end: %v, left %v", err, leftovers(pod))
	}
	orphan := &corev1.Pod{}
	orphan.UID = pod.UID
	for _, deleted := range []*corev1.Pod{pod, orphan} {
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if !leftovers(deleted) {
			t.Error("its logs do not count")
		}
		remove(deleted)
		if _, err := os.Stat(dir); err == nil || leftovers(deleted) {
			t.Error("its logs stay")
		}
	}
}
