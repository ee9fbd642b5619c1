package nodeapi

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
)

// An agent that somebody needs stays; from one that leaves nobody gets pods any more.
func TestAnAgentLeavesOnlyWhenNobodyNeedsIt(t *testing.T) {
	f := &fakeAgent{}
	c, _ := serve(t, f)
	wanted := agent.Objects{Secrets: []*corev1.Secret{{}}, Pods: []*corev1.Pod{podOf("web", "new", corev1.PodStatus{})}}
	for name, phase := range map[string]corev1.PodPhase{"is new": "", "waits": corev1.PodPending, "runs": corev1.PodRunning} {
		f.setPods(podOf("web", "u", corev1.PodStatus{Phase: phase}))
		if ok, err := c.LeaveIdle(t.Context()); ok || err != nil {
			t.Errorf("with a pod that %s: %t, %v", name, ok, err)
		}
		if _, err := c.Apply(t.Context(), wanted, ""); err != nil {
			t.Errorf("after it was asked to leave, with a pod that %s: %v", name, err)
		}
	}
	f.setPods(podOf("job", "u", corev1.PodStatus{Phase: corev1.PodSucceeded}))
	begun, followed := make(chan struct{}), make(chan error, 1)
	stand := func() error {
		return c.WatchAs(t.Context(), "run", nil, func() { close(begun) }, func(agent.Update, int) error { return errors.New("enough") })
	}
	go func() { followed <- stand() }()
	<-begun
	if _, err := c.Apply(t.Context(), wanted, "run"); err != nil {
		t.Fatal(err)
	}
	if ok, err := c.LeaveIdle(t.Context()); ok || err != nil {
		t.Errorf("with a run that follows a pod: %t, %v", ok, err)
	}
	f.put(agent.Update{})
	<-followed
	for { // the watch ends a moment later at the other end
		ok, err := c.LeaveIdle(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			break
		}
	}
	if _, err := c.Apply(t.Context(), wanted, ""); !errors.Is(err, ErrCut) {
		t.Errorf("who asks for a pod then is told %v", err)
	}
}

func (f *fakeAgent) setPods(pods ...*corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods = pods
}
