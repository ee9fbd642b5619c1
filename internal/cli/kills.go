package cli

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
)

// kills is what is known of containers that the node killed while their pod went on:
// how such a container ended says nothing of why. The zero value knows nothing.
type kills struct {
	last   map[string]killing      // by container
	causes map[string]*agent.Event // the newest of what containers are killed for, by container and what failed
}

// killing is that a container is being killed.
type killing struct {
	at   time.Time
	what string // what failed, as causes call it; empty: it is another reason
	why  string // in words
}

// note takes an event that may tell of a killing, or of what leads to one.
func (k *kills) note(e *agent.Event, at time.Time) {
	if k.last == nil {
		k.last, k.causes = make(map[string]killing), make(map[string]*agent.Event)
	}
	switch {
	case e.Reason == "Unhealthy":
		kind, _, _ := strings.Cut(e.Message, " ")
		k.causes[e.Container+" "+strings.ToLower(kind)+" probe"] = e
	case e.Reason == "FailedPostStartHook":
		k.causes[e.Container+" postStart hook"] = e
	case e.Reason == "Killing" && !endsPod(e):
		why := strings.TrimPrefix(e.Message, "Container "+e.Container+" ")
		is := killing{at: at, why: strings.TrimSuffix(why, ", will be restarted")}
		failed, isProbe := strings.CutPrefix(is.why, "failed ")
		switch {
		case isProbe:
			is.what = failed
		case e.Message == "FailedPostStartHook":
			is.what = "postStart hook"
		}
		if is.what != "" {
			is.why = is.what + " failed"
		}
		k.last[e.Container] = is
	}
}

// state says that a container is being killed, or was, and why.
func (k *kills) state(word, container string) state {
	is := k.last[container]
	s := state{word: word, detail: is.why, mood: bad}
	if cause := k.causes[container+" "+is.what]; cause != nil {
		_, text, _ := strings.Cut(cause.Message, ": ")
		if s.text = brief(text); s.text != "" {
			s.detail += ": " + s.text
		}
	}
	return s
}

// caused says whether a container ended because it was killed. The API's times have
// no fractions of seconds.
func (k *kills) caused(container string, t *corev1.ContainerStateTerminated) bool {
	is, ok := k.last[container]
	return ok && t.Reason != "OOMKilled" && !is.at.Before(t.StartedAt.Truncate(time.Second)) && is.at.Before(t.FinishedAt.Add(time.Second))
}

// endOf says how a container of the pod ended, and why where the node killed it.
func (p *podState) endOf(container string, t *corev1.ContainerStateTerminated) state {
	if p.kills.caused(container, t) {
		return p.kills.state("killed", container)
	}
	return ended(t)
}
