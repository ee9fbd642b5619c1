package agent

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/shim"
)

// shimEvery is how long after an answer the shim is asked again whether it is there.
const shimEvery = 5 * time.Second

// watchShim looks whether the shim answers, and tells when that changes; nil: it
// answers again, or another one does.
func (r *Runtime) watchShim(ctx context.Context, tell func(*shim.MuteError)) error {
	for {
		var mute *shim.MuteError
		errors.As(r.shim.Answers(ctx), &mute)
		if ctx.Err() != nil {
			return nil
		}
		was := r.mute.Swap(mute)
		switch {
		case mute != nil && was == nil:
			r.log.Warn("nothing can be done to containers", "err", mute)
			tell(mute)
		case mute == nil && was != nil:
			r.log.Info("the shim answers again")
			tell(nil)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(shimEvery):
		}
	}
}

// shimAnswers says why a call to the shim would wait for ever.
func (r *Runtime) shimAnswers(ctx context.Context) error {
	if err := r.Trouble(); err != nil {
		return err
	}
	return r.shim.Answers(ctx)
}

// Trouble says what keeps the runtime from doing anything to containers; nil:
// nothing that is known.
func (r *Runtime) Trouble() error {
	if mute := r.mute.Load(); mute != nil {
		return mute
	}
	return nil
}

// watchShims is watchShim that tells all pods that may have containers.
func (a *Agent) watchShims(ctx context.Context) error {
	return a.watchShim(ctx, func(mute *shim.MuteError) {
		e := Event{Type: corev1.EventTypeNormal, Reason: "ShimAnswers", Message: "the shim answers again"}
		if mute != nil {
			e = Event{Type: corev1.EventTypeWarning, Reason: "ShimMute", Message: "nothing can be done to the pod: " + mute.Error()}
		}
		for _, p := range a.Pods() {
			if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				a.feed.put(Update{Kind: EventUpdate, Pod: refOf(p), Event: &e})
			}
		}
	})
}
