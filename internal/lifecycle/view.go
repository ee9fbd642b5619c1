package lifecycle

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// view is one decision in the making: the input in the order of the spec, and
// what has been decided so far.
type view struct {
	in  Input
	pod *corev1.Pod
	h   History

	init      []*member // in spec order, sidecars included
	main      []*member
	ephemeral []*member
	strays    []Container // observed, and no newest attempt of a name in the spec

	sandbox   *Sandbox // the newest; nil: none
	sandboxOK bool     // containers can be started in it
	sandboxes []Sandbox

	d Decision
}

// member is one container of the pod: its spec, its past, and what is seen.
type member struct {
	spec    *corev1.Container
	kind    memberKind
	h       ContainerHistory
	obs     *Container // newest attempt; nil: not seen
	current bool       // its newest attempt belongs to this sandbox and round
	// starting: its start is under way.
	starting bool
	// waiting is why it does not run and will, for the status; nil: see there.
	waiting *corev1.ContainerStateWaiting
}

type memberKind int

const (
	plainInit memberKind = iota
	sidecar
	mainContainer
	ephemeralContainer
)

func newView(in Input) *view {
	v := &view{in: in, pod: in.Pod, h: in.History}
	v.sandboxes = slices.Clone(in.Observed.Sandboxes)
	slices.SortFunc(v.sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	if n := len(v.sandboxes); n > 0 {
		v.sandbox = &v.sandboxes[n-1]
		v.sandboxOK = sandboxUsable(v.pod, v.sandbox)
	}

	newest := map[string]*Container{}
	containers := sortedContainers(in.Observed.Containers)
	for i := range containers {
		newest[containers[i].Name] = &containers[i]
	}
	add := func(c *corev1.Container, kind memberKind) *member {
		m := &member{spec: c, kind: kind, h: v.h.Containers[c.Name]}
		if o := newest[c.Name]; o != nil && o.ID == m.h.ID {
			m.obs = o
		}
		m.current = m.h.Attempts > 0 && m.h.Round == v.h.RestartAll &&
			v.sandbox != nil && m.h.StartedIn == v.sandbox.ID
		m.starting = starting(in.UnderWay, c.Name)
		return m
	}
	for i := range v.pod.Spec.InitContainers {
		c := &v.pod.Spec.InitContainers[i]
		kind := plainInit
		if isSidecar(c) {
			kind = sidecar
		}
		v.init = append(v.init, add(c, kind))
	}
	for i := range v.pod.Spec.Containers {
		v.main = append(v.main, add(&v.pod.Spec.Containers[i], mainContainer))
	}
	for i := range v.pod.Spec.EphemeralContainers {
		c := (*corev1.Container)(&v.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		v.ephemeral = append(v.ephemeral, add(c, ephemeralContainer))
	}
	taken := map[string]bool{}
	for m := range v.members() {
		if m.obs != nil {
			taken[m.obs.ID] = true
		}
	}
	for _, c := range containers {
		if !taken[c.ID] {
			v.strays = append(v.strays, c)
		}
	}
	return v
}

// members walks all containers of the spec: init, main, ephemeral.
func (v *view) members() func(yield func(*member) bool) {
	return func(yield func(*member) bool) {
		for _, list := range [][]*member{v.init, v.main, v.ephemeral} {
			for _, m := range list {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// isSidecar says whether an init container is restartable (KEP-753).
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// alive says that a process of the container runs, or may run.
func (m *member) alive() bool {
	return m.obs != nil && (m.obs.State == ContainerRunning || m.obs.State == ContainerUnknown)
}

// running says that the container runs and its postStart hook ended well.
func (m *member) running() bool {
	return m.obs != nil && m.obs.State == ContainerRunning && !m.postStartPending() && !m.h.PostStart.Failed
}

// unseen says that the container was made and has not been observed yet, or
// exited and its end has not been folded: the next observation tells.
func (m *member) unseen() bool {
	return m.h.ID != "" && m.h.Exit == nil && m.obs == nil
}

// exited says that the newest attempt has ended.
func (m *member) exited() bool { return m.h.Exit != nil && !m.alive() }

// startupPassed says that nothing holds back the containers behind this one.
func (m *member) startupPassed() bool {
	return m.running() && (m.spec.StartupProbe == nil || m.h.Probes[StartupProbe].Outcome == Success)
}

// want puts an action on the list.
func (v *view) want(a Action) { v.d.Work = append(v.d.Work, a) }

// because notes a choice.
func (v *view) because(code, container, message string) {
	v.d.Reasons = append(v.d.Reasons, Reason{Code: code, Container: container, Message: message})
}

// lookAt asks for another decision at t, unless one is due sooner.
func (v *view) lookAt(t time.Time) {
	if !t.After(v.in.Now) {
		return
	}
	if v.d.LookAgain.IsZero() || t.Before(v.d.LookAgain) {
		v.d.LookAgain = t
	}
}

// waits says whether the time until has yet to come, and looks again then.
func (v *view) waits(until time.Time) bool {
	if until.After(v.in.Now) {
		v.lookAt(until)
		return true
	}
	return false
}

func (v *view) underWay(kind ActionKind) bool {
	return slices.ContainsFunc(v.in.UnderWay, func(k Key) bool { return k.Kind == kind })
}

func starting(underWay []Key, name string) bool {
	return slices.ContainsFunc(underWay, func(k Key) bool {
		return k.Kind == StartContainer && k.Container == name
	})
}

func sortedContainers(list []Container) []Container {
	s := slices.Clone(list)
	slices.SortFunc(s, func(a, b Container) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt),
			a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return s
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
