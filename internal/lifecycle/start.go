package lifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// start brings a container up: wait, pull, start. It answers whether that is
// going on; false: it waits for its next try.
func (v *view) start(m *member) bool {
	name := m.spec.Name
	if m.starting && !m.current {
		return true // in a sandbox or round that is gone: it must end first
	}
	if m.starting {
		// Asked again while under way, so that it is not cancelled.
		v.want(Action{Kind: StartContainer, Container: name, SandboxID: m.h.StartedIn,
			Attempt: m.h.Attempts - 1, ImageRef: m.h.ImageRef})
		m.waiting = failing(m.h.Start)
		return true
	}
	attempt := m.h.Attempts
	if m.obs != nil && m.obs.State == ContainerCreated && m.current {
		attempt = m.obs.Attempt // it never ran: the same attempt again
	}
	// What another image led to says nothing about this one, which may be the cure.
	// Source: kubelet 1.37, whose waits are by image.
	same := m.h.Image == "" || m.h.Image == m.spec.Image
	if same && v.waits(m.h.Backoff.until()) {
		m.waiting = &corev1.ContainerStateWaiting{
			Reason: ReasonCrashLoopBackOff,
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				m.h.Backoff.Wait, name, v.pod.Name, v.pod.Namespace, v.pod.UID),
		}
		v.because(ReasonCrashLoopBackOff, name, m.waiting.Message)
		return false
	}
	if f := m.h.Start; f != nil && same {
		m.waiting = failing(f)
		v.because(f.Reason, name, f.Message)
		if v.waits(f.Until) {
			return false
		}
	}
	if m.h.PulledFor != attempt+1 || m.h.Image != m.spec.Image {
		if f := m.h.Pull; f != nil && same {
			m.waiting = failingPull(m.spec.Image, f)
			v.because(m.waiting.Reason, name, m.waiting.Message)
			if v.waits(f.Until) {
				return false
			}
		}
		v.want(Action{Kind: PullImage, Container: name, Attempt: attempt, Image: m.spec.Image})
		return true
	}
	v.want(Action{Kind: StartContainer, Container: name, SandboxID: v.sandbox.ID, Attempt: attempt, ImageRef: m.h.ImageRef})
	return true
}

func failing(f *FailureHistory) *corev1.ContainerStateWaiting {
	if f == nil {
		return nil
	}
	return &corev1.ContainerStateWaiting{Reason: f.Reason, Message: f.Message}
}

// failingPull shows the first failure as it was and later ones as a back-off,
// with the cause.
func failingPull(image string, f *FailureHistory) *corev1.ContainerStateWaiting {
	switch f.Reason {
	case ReasonErrImageNeverPull, ReasonInvalidImageName:
		return failing(f)
	}
	if f.Count < 2 {
		return failing(f)
	}
	return &corev1.ContainerStateWaiting{
		Reason:  ReasonImagePullBackOff,
		Message: fmt.Sprintf("Back-off pulling image %q: %s: %s", image, f.Reason, f.Message),
	}
}
