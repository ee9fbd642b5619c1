package nodeapi

import "testing"

func TestTheLastOfTheFollowersEndsAPod(t *testing.T) {
	var f followers
	f.follow("a", "pod") // does not watch: does not count
	endA, endB := f.begin("a"), f.begin("b")
	f.follow("a", "pod")
	f.follow("b", "pod")
	f.follow("b", "other")
	if !f.release("a", "pod") {
		t.Error("the pod is ended under b")
	}
	if f.release("b", "pod") {
		t.Error("nobody ends the pod: a has let go of it")
	}
	if !f.release("a", "other") {
		t.Error("the pod of b alone is ended by a")
	}
	endB()
	if f.release("a", "other") {
		t.Error("a run that went away still follows")
	}
	endA()
}
