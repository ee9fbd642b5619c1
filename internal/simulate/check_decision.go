package simulate

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// decided holds one decision against the properties of a single decision. fresh
// says that it differs from the one before: most do not, and what is costly is
// then left out.
func (c *checker) decided(in lifecycle.Input, d lifecycle.Decision, h lifecycle.History, fresh bool) {
	c.reported(&d.Status)
	c.invented(&d.Status)
	c.seen(&d.Status)
	if h.Termination != nil {
		c.graceLeft(h.Termination)
	}
	if d.Finished && (len(c.a.sandboxes)+len(c.a.containers) > 0 || c.a.leftovers || len(c.a.working) > 0) {
		c.fail("finished, but something is left: %d sandboxes, %d containers, leftovers %v, under way %v",
			len(c.a.sandboxes), len(c.a.containers), c.a.leftovers, c.a.underWay())
	}
	if !d.Finished && len(d.Work)+len(in.UnderWay)+len(d.Probes) == 0 && d.LookAgain.IsZero() && !c.asDesired(d) {
		c.fail("silent wait: nothing is under way and the pod is not as desired: %s", d.Status.Phase)
	}
	if !fresh {
		return
	}
	settled := in
	settled.History = h
	c.fresh++
	var before []byte
	other := turned(settled)
	if c.fresh%16 == 0 {
		before = encode(other)
	}
	if got := lifecycle.Decide(other); !reflect.DeepEqual(got, d) {
		c.fail("the same input in another order gives another decision:\n%+v\n%+v", got, d)
	}
	if before != nil && !slices.Equal(before, encode(other)) {
		c.fail("Decide changes its input")
	}
	c.lookAgain(settled, d)
	c.stable(settled, d)
}

// invented: a container that never ran has no end that is not known, unless it
// was lost with its sandbox.
func (c *checker) invented(status *corev1.PodStatus) {
	if c.a.lost {
		return
	}
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			end := list[i].State.Terminated
			if end == nil || end.Reason != lifecycle.ReasonContainerStatusUnknown || end.ContainerID == "" {
				continue
			}
			if _, id, _ := strings.Cut(end.ContainerID, "://"); !c.ran[id] {
				c.fail("%s is said to have ended and never ran", id)
			}
		}
	}
}

// seen: what is said of a container that the runtime holds is so.
func (c *checker) seen(status *corev1.PodStatus) {
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			s := &list[i]
			if end := s.State.Terminated; end != nil {
				_, id, _ := strings.Cut(end.ContainerID, "://")
				if x := c.a.findContainer(id); x != nil && (x.State != lifecycle.ContainerExited || x.ExitCode != end.ExitCode) {
					c.fail("%s is said to have ended with %d; it is %s, exit code %d", id, end.ExitCode, x.State, x.ExitCode)
				}
			}
			if s.State.Running != nil {
				_, id, _ := strings.Cut(s.ContainerID, "://")
				if x := c.a.findContainer(id); x == nil || x.State != lifecycle.ContainerRunning || int(s.RestartCount) != x.Attempt {
					c.fail("%s is said to run after %d restarts: %+v", id, s.RestartCount, x)
				}
			}
			if s.Ready && s.State.Running == nil && (s.State.Terminated == nil || s.State.Terminated.ExitCode != 0) {
				c.fail("%s is said to be ready and does not run", s.Name)
			}
		}
	}
}

// lookAgain: nothing changes before LookAgain, and something does at it.
func (c *checker) lookAgain(in lifecycle.Input, d lifecycle.Decision) {
	now := in.Now
	if in.Now = now.Add(24 * time.Hour); !d.LookAgain.IsZero() {
		in.Now = d.LookAgain.Add(-1)
	}
	if got := lifecycle.Decide(in); !reflect.DeepEqual(got, d) {
		c.fail("the decision changes before LookAgain %s:\n%+v\n%+v", d.LookAgain, got.Work, d.Work)
	}
	if d.LookAgain.IsZero() {
		return
	}
	in.Now = d.LookAgain
	got := lifecycle.Decide(in)
	got.LookAgain = d.LookAgain
	if !d.LookAgain.After(now) || reflect.DeepEqual(got, d) {
		c.fail("nothing changes at LookAgain %s", d.LookAgain)
	}
}

// stable: what is wanted is still wanted once it is under way.
func (c *checker) stable(in lifecycle.Input, d lifecycle.Decision) {
	if len(d.Work) == 0 {
		return
	}
	in.UnderWay = slices.Clone(in.UnderWay)
	for _, act := range d.Work {
		if !slices.Contains(in.UnderWay, act.Key()) {
			in.UnderWay = append(in.UnderWay, act.Key())
			in.History = in.History.Apply(lifecycle.ActionStarted{Action: act, At: in.Now})
		}
	}
	got := lifecycle.Decide(in).Work
	for _, act := range d.Work {
		if !slices.ContainsFunc(got, func(g lifecycle.Action) bool { return g.Key() == act.Key() }) {
			c.fail("%s is wanted no longer once it is under way", act.Key())
		}
	}
}

// turned is the input with all that has no order in another one.
func turned(in lifecycle.Input) lifecycle.Input {
	in.Observed.Containers = slices.Clone(in.Observed.Containers)
	slices.Reverse(in.Observed.Containers)
	in.Observed.Sandboxes = slices.Clone(in.Observed.Sandboxes)
	slices.Reverse(in.Observed.Sandboxes)
	in.UnderWay = slices.Clone(in.UnderWay)
	slices.Reverse(in.UnderWay)
	return in
}

func encode(in lifecycle.Input) []byte {
	b, err := json.Marshal(in)
	if err != nil {
		panic(err) // an input is always JSON
	}
	return b
}

// asDesired says that there is nothing to wait for but the containers' own ends.
func (c *checker) asDesired(d lifecycle.Decision) bool {
	if len(c.a.live()) > 0 {
		return c.a.pod.DeletionTimestamp == nil
	}
	return d.Stopped && c.a.pod.DeletionTimestamp == nil
}

// reported: what must not go back does not.
func (c *checker) reported(s *corev1.PodStatus) {
	old := c.status
	c.status = s.DeepCopy()
	if terminal(s.Phase) && len(c.a.live()) > 0 {
		c.fail("phase %s while containers run", s.Phase)
	}
	if old == nil {
		return
	}
	if rank(s.Phase) < rank(old.Phase) || terminal(old.Phase) && s.Phase != old.Phase {
		c.fail("phase goes from %s to %s", old.Phase, s.Phase)
	}
	if !old.StartTime.Equal(s.StartTime) {
		c.fail("startTime changes")
	}
	for _, n := range s.Conditions {
		for _, o := range old.Conditions {
			if n.Type == o.Type && n.Status == o.Status && !n.LastTransitionTime.Equal(&o.LastTransitionTime) {
				c.fail("condition %s has a new transition time and the same status", n.Type)
			}
		}
	}
	c.containers(old.InitContainerStatuses, s.InitContainerStatuses)
	c.containers(old.ContainerStatuses, s.ContainerStatuses)
}

func (c *checker) containers(old, now []corev1.ContainerStatus) {
	for i := range now {
		n, o := &now[i], &old[i]
		if n.RestartCount < o.RestartCount {
			c.fail("restartCount of %s goes from %d to %d", n.Name, o.RestartCount, n.RestartCount)
		}
		if o.State.Terminated != nil && n.State.Running == nil && n.State.Terminated == nil && n.LastTerminationState.Terminated == nil {
			c.fail("the end of %s is lost", n.Name)
		}
		if o.State.Terminated != nil && n.State.Running != nil && n.ContainerID == o.ContainerID {
			c.fail("%s runs again as the same container", n.Name)
		}
	}
}

func terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

func rank(p corev1.PodPhase) int {
	switch p {
	case corev1.PodPending:
		return 1
	case corev1.PodRunning:
		return 2
	case corev1.PodSucceeded, corev1.PodFailed:
		return 3
	}
	return 0
}
