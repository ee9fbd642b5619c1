package cri

import (
	"testing"

	"github.com/berth-run/berth/internal/cri/store"
)

// The signal that ended a container is told to those who ask for everything.
func TestSignalThatEndedIt(t *testing.T) {
	f := newFixture(t)
	_, id := f.runOne(t)
	if err := f.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	r, err := f.ContainerStatus(t.Context(), id, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.GetInfo()[InfoExitSignal]; got != "9" {
		t.Errorf("signal %q, want 9", got)
	}
	c, err := f.container(id)
	if err != nil {
		t.Fatal(err)
	}
	c.saving.Lock() // who waited for the end may be here before it is written
	loaded, err := f.store.Load()
	c.saving.Unlock()
	if err != nil || len(loaded.Containers) != 1 || loaded.Containers[0].Signal != 9 {
		t.Errorf("on disk: %+v, %v", loaded.Containers, err)
	}
	if c.state() != store.ContainerExited {
		t.Errorf("it is %s", c.state())
	}
}
