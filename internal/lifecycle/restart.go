package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Waits between starts, and between pulls. Source: kubelet 1.37 (10 s doubling
// to 5 min; forgotten after running for twice the longest wait).
const (
	minWait    = 10 * time.Second
	maxWait    = 5 * time.Minute
	forgetWait = 2 * maxWait
)

// backoff is how waits grow from failure to failure.
type backoff struct{ first, most time.Duration }

var (
	pullBackoff = backoff{minWait, maxWait}
	// retryBackoff is for what can be tried again cheaply and is often cured by
	// something appearing: volumes, sandboxes, container configs.
	retryBackoff = backoff{time.Second, 20 * time.Second}
	noBackoff    = backoff{}
)

func nextFailure(prev *FailureHistory, f Failed, at time.Time, b backoff) *FailureHistory {
	n := &FailureHistory{Reason: f.Reason, Message: f.Message, Count: 1, At: at}
	if prev != nil {
		n.Count = prev.Count + 1
	}
	wait := b.first
	for i := 1; i < n.Count && wait < b.most; i++ {
		wait *= 2
	}
	n.Until = at.Add(min(wait, b.most))
	return n
}

// crashed grows the wait before the next start after exit x. The first restart
// comes at once; a container that ran long starts again from nothing. The wait counts
// from the end, or from when it was seen if the runtime does not tell the time
// or tells it by a clock that was set back since.
func (c ContainerHistory) crashed(x Exit, seen time.Time) ContainerHistory {
	wait := minWait
	switch {
	case c.Backoff.Since.IsZero(), !x.StartedAt.IsZero() && x.FinishedAt.Sub(x.StartedAt)-c.Stepped > forgetWait:
		wait = 0
	case c.Backoff.Wait > 0:
		wait = min(2*c.Backoff.Wait, maxWait)
	}
	since := x.FinishedAt
	if since.IsZero() || since.After(seen) {
		since = seen
	}
	c.Backoff = BackoffHistory{Wait: wait, Since: since}
	return c
}

// until is when the next start may begin.
func (b BackoffHistory) until() time.Time {
	if b.Wait == 0 {
		return time.Time{}
	}
	return b.Since.Add(b.Wait)
}

// restarts says whether the container starts again after exit x, by its own
// policy and rules or else the pod's. An unknown exit code counts as a failure.
// Source: KEP-5307.
func restarts(pod *corev1.Pod, c *corev1.Container, x Exit) bool {
	if c.RestartPolicy != nil {
		if !x.Unknown {
			if r := matchingRule(c, x.Code); r != nil {
				switch r.Action {
				case corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers:
					return true
				}
			}
		}
		switch *c.RestartPolicy {
		case corev1.ContainerRestartPolicyAlways:
			return true
		case corev1.ContainerRestartPolicyOnFailure:
			return x.failed()
		case corev1.ContainerRestartPolicyNever:
			return false
		}
	}
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyOnFailure:
		return x.failed()
	case corev1.RestartPolicyNever:
		return false
	}
	return true
}

// neverRestarts says that a container that began to run must not run again,
// whatever became of it, unless a rule on its exit code says so.
func neverRestarts(pod *corev1.Pod, c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy == corev1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever
}

// restartsAll says that exit x starts all containers of the pod over.
func restartsAll(c *corev1.Container, x Exit) bool {
	if x.Unknown {
		return false
	}
	r := matchingRule(c, x.Code)
	return r != nil && r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
}

// hasRestartAllRule says that some container's exit can start all over.
func hasRestartAllRule(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, r := range list[i].RestartPolicyRules {
				if r.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	return false
}

func matchingRule(c *corev1.Container, code int32) *corev1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		r := &c.RestartPolicyRules[i]
		if r.ExitCodes == nil {
			continue
		}
		in := slices.Contains(r.ExitCodes.Values, code)
		switch r.ExitCodes.Operator {
		case corev1.ContainerRestartRuleOnExitCodesOpIn:
			if in {
				return r
			}
		case corev1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !in {
				return r
			}
		}
	}
	return nil
}

// failed says that the container did not end well.
func (x Exit) failed() bool { return x.Unknown || x.Code != 0 }
