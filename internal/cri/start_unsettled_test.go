package cri

import (
	"errors"
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/shim"
)

// unsettled makes a container whose start was lost with a shim that can't be asked.
// ran says whether its command was run.
func (f *fixture) unsettled(t *testing.T, ran bool) (sandboxID, id string) {
	t.Helper()
	sandboxID, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	if id, err = f.CreateContainer(t.Context(), sandboxID, containerConfig("app"), nil); err != nil {
		t.Fatal(err)
	}
	f.shim.mu.Lock()
	f.shim.onList = func() error { return errors.New("no shim") }
	f.shim.onStart = func(id string) error {
		f.shim.mu.Lock()
		defer f.shim.mu.Unlock()
		if ran {
			f.shim.containers[id].State, f.shim.containers[id].StartedAt = shim.Running, time.Now()
		}
		return shim.ErrGone
	}
	f.shim.mu.Unlock()
	if err := f.StartContainer(t.Context(), id); err == nil {
		t.Error("the start is said to have succeeded")
	}
	return sandboxID, id
}

// shimAnswers ends what unsettled began.
func (f *fixture) shimAnswers() {
	f.shim.mu.Lock()
	defer f.shim.mu.Unlock()
	f.shim.onList, f.shim.onStart = nil, nil
}

// While nobody can say whether a container has run, nobody may take it for one that
// has not: what would follow is a second run of the same attempt.
func TestNobodyKnowsWhetherItRuns(t *testing.T) {
	const (
		created = runtimeapi.ContainerState_CONTAINER_CREATED
		running = runtimeapi.ContainerState_CONTAINER_RUNNING
		exited  = runtimeapi.ContainerState_CONTAINER_EXITED
		unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
	)
	for _, ran := range []bool{true, false} {
		for name, c := range map[string]struct {
			act                 func(f *fixture, sandboxID, id string) error
			afterRun, afterNone runtimeapi.ContainerState
			failsAfterRun       bool
		}{
			"looked at": {func(f *fixture, _, _ string) error { return f.reobserve(t.Context()) }, running, created, false},
			"stopped":   {func(f *fixture, _, id string) error { return f.StopContainer(t.Context(), id, 0) }, exited, created, false},
			"its sandbox is stopped": {func(f *fixture, sb, _ string) error { return f.StopPodSandbox(t.Context(), sb) },
				exited, created, false},
			"started again": {func(f *fixture, _, id string) error { return f.StartContainer(t.Context(), id) }, running, running, true},
		} {
			t.Run(fmt.Sprintf("%s, ran %v", name, ran), func(t *testing.T) {
				f := newFixture(t)
				sb, id := f.unsettled(t, ran)
				if st := f.statusOf(t, id); st.GetState() != unknown {
					t.Errorf("it is %s, want unknown", st.GetState())
				}
				if err := c.act(f, sb, id); err == nil {
					t.Error("no error, although the shim can't be asked")
				}
				if st := f.statusOf(t, id); st.GetState() != unknown {
					t.Errorf("then it is %s, want unknown", st.GetState())
				}
				f.shimAnswers()
				want, fails := c.afterNone, false
				if ran {
					want, fails = c.afterRun, c.failsAfterRun
				}
				if err := c.act(f, sb, id); (err != nil) != fails {
					t.Errorf("error %v", err)
				}
				if st := f.statusOf(t, id); st.GetState() != want {
					t.Errorf("in the end it is %s, want %s", st.GetState(), want)
				}
			})
		}
	}
}

// Removed it is only when nothing of it can run any more.
func TestRemoveWhatMayRun(t *testing.T) {
	f := newFixture(t)
	_, id := f.unsettled(t, true)
	if err := f.RemoveContainer(t.Context(), id); err == nil {
		t.Error("removed, although the shim can't be asked")
	}
	f.shimAnswers()
	if err := f.RemoveContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if ids := f.shim.ids(); len(ids) != 0 {
		t.Errorf("the shim has %v", ids)
	}
}

// A container that begins to run after it was seen not to is not deleted, but found
// running.
func TestRunsWhileItIsSettled(t *testing.T) {
	f := newFixture(t)
	_, id := f.unsettled(t, false)
	f.shimAnswers()
	f.shim.mu.Lock()
	f.shim.onDeleteNotRun = func(st *shim.Status) {
		if st != nil && st.State == shim.Created {
			st.State, st.StartedAt = shim.Running, time.Now()
		}
	}
	f.shim.mu.Unlock()
	if err := f.reobserve(t.Context()); err != nil {
		t.Error(err)
	}
	if st := f.statusOf(t, id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("it is %s, want running", st.GetState())
	}
	if ids := f.shim.ids(); len(ids) != 1 {
		t.Errorf("the shim has %v", ids)
	}
}
