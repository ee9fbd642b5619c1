package lifecycle

// initRules run the init containers one after the other and keep the sidecars
// among them going. They answer whether the main containers may start.
//
// As in the kubelet, all before the furthest one begun count as passed, so that
// a completed init container may be removed without running again.
func (v *view) initRules() bool {
	next := v.furthestInit()
	if next >= 0 && next < len(v.init) {
		if m := v.init[next]; v.initDone(m) || m.kind == sidecar && m.startupPassed() {
			next++
		}
	}
	next = max(next, 0)
	for next < len(v.init) && v.initDone(v.init[next]) {
		next++
	}
	for i, m := range v.init {
		switch {
		case m.kind == sidecar && m.alive():
			v.keep(m)
		case m.unseen(), i > next, i < next && m.kind == plainInit:
		case m.alive():
			v.keepInit(m)
		default:
			v.start(m)
		}
	}
	return next == len(v.init)
}

// furthestInit is the index of the last init container begun in this sandbox
// and round; -1: none; the number of them: a main container was begun.
func (v *view) furthestInit() int {
	if v.initialized() {
		return len(v.init)
	}
	for i := len(v.init) - 1; i >= 0; i-- {
		if v.init[i].current {
			return i
		}
	}
	return -1
}

// initialized says that the pod has passed its init containers in this sandbox:
// a main container was begun in it.
func (v *view) initialized() bool {
	for _, m := range v.main {
		if m.current {
			return true
		}
	}
	return false
}

// initDone says that a plain init container has done its work. In a new sandbox
// it has to do it again, unless it must never run twice.
func (v *view) initDone(m *member) bool {
	if m.kind != plainInit || !m.exited() || m.h.Exit.failed() {
		return false
	}
	if m.h.Round != v.h.RestartAll {
		return false
	}
	return m.current || neverRestarts(v.pod, m.spec)
}

// initFailed says that an init container has failed for good, and which.
func (v *view) initFailed() *member {
	for _, m := range v.init {
		if m.kind == plainInit && v.runsOnce(m) && m.h.Exit.failed() {
			return m
		}
	}
	return nil
}

// keepInit lets a running plain init container be: it has no probes and no
// hooks, and its image may not change once it runs.
func (v *view) keepInit(m *member) {
	switch {
	case m.starting:
		v.start(m)
	case m.h.Stop != nil, m.obs.State == ContainerUnknown:
		v.stopUnknown(m)
	}
}
