package shim_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/shim"
)

// What the shim needs does not grow with what it has done: containers that were
// started and deleted, and execs. BERTH_SHIM_STARTS=5000 looks longer,
// and so closer.
func TestMemoryIsFlat(t *testing.T) {
	starts := 200
	if s := os.Getenv("BERTH_SHIM_STARTS"); s != "" {
		var err error
		if starts, err = strconv.Atoi(s); err != nil {
			t.Fatalf("BERTH_SHIM_STARTS: %v", err)
		}
	}
	n := newNode(t)
	var cancel context.CancelFunc
	n.ctx, cancel = context.WithTimeout(context.Background(), time.Minute+time.Duration(starts)*time.Second)
	defer cancel()
	n.start(n.bundle("stays", withSeccomp, "init"))
	live := func(id string) error {
		if _, err := n.Create(n.ctx, n.bundle(id, withSeccomp, "lines", "50")); err != nil {
			return err
		}
		if _, err := n.Start(n.ctx, id); err != nil {
			return err
		}
		if e, err := n.Wait(n.ctx, id); err != nil || e.Code != 0 {
			return fmt.Errorf("wait says %+v, %w", e, err)
		}
		if e, err := n.Exec(n.ctx, shim.ExecRequest{ID: "stays", Process: process("true")}); err != nil || e.Code != 0 {
			return fmt.Errorf("exec says %+v, %w", e, err)
		}
		if err := n.Delete(n.ctx, id); err != nil {
			return err
		}
		return os.RemoveAll(n.dir + "/" + id)
	}
	made := 0
	run := func(count int) {
		t.Helper()
		var workers sync.WaitGroup
		for w := range 4 {
			workers.Go(func() {
				for i := range count / 4 {
					if err := live(fmt.Sprintf("c%d-%d-%d", made, w, i)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		workers.Wait()
		made += count
	}
	// measure waits until it has given back what it does not need.
	measure := func() (kib, descriptors int) {
		time.Sleep(5 * time.Second)
		pid := n.shimPID()
		return pss(t, pid, "Pss_Anon:"), fds(t, pid)
	}
	run(200) // caches fill, once
	kib, descriptors := measure()
	run(starts)
	kibAfter, descriptorsAfter := measure()
	t.Logf("%d KiB and %d descriptors after 200 starts, %d KiB and %d after %d more", kib, descriptors, kibAfter, descriptorsAfter, starts)
	// The same work leaves a megabyte more or less on the heap each time.
	if grown := kibAfter - kib; grown > 3<<10 {
		t.Errorf("grown by %d KiB in %d starts", grown, starts)
	}
	if descriptorsAfter > descriptors {
		t.Errorf("%d descriptors more after %d starts", descriptorsAfter-descriptors, starts)
	}
}
