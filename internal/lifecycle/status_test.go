package lifecycle

import "testing"

// What was known of a pod stays in its status while its sandbox is gone: its
// address, its start time, what its containers were made from.
func TestStatusKeepsWhatWasKnown(t *testing.T) {
	w := newScenarioWorld()
	for _, c := range []string{"pod containers=app", "settle", "tick 1m", "sandbox lost"} {
		if err := w.do(c); err != nil {
			t.Fatal(err)
		}
	}
	before := w.d.Status
	w.look()
	after := w.d.Status
	if after.PodIP != before.PodIP || after.PodIP == "" || len(after.PodIPs) != 1 {
		t.Errorf("address %q, was %q", after.PodIP, before.PodIP)
	}
	if !after.StartTime.Equal(before.StartTime) {
		t.Errorf("start time %s, was %s", after.StartTime, before.StartTime)
	}
	was, is := before.ContainerStatuses[0], after.ContainerStatuses[0]
	if is.ImageID != was.ImageID || is.ContainerID != was.ContainerID || is.ImageID == "" {
		t.Errorf("made from %q as %q, was %q as %q", is.ImageID, is.ContainerID, was.ImageID, was.ContainerID)
	}
}
