package lifecycle

// postStartPending says that the container's postStart hook has not ended.
// Source: the API says that a container is not running before it has.
func (m *member) postStartPending() bool {
	return m.spec.Lifecycle != nil && m.spec.Lifecycle.PostStart != nil && !m.h.PostStart.Done
}

// preStopPending says that a preStop hook has yet to run, in a container that
// can run it.
func (m *member) preStopPending() bool {
	return m.spec.Lifecycle != nil && m.spec.Lifecycle.PreStop != nil && !m.h.PreStop.Done &&
		m.obs != nil && m.obs.State == ContainerRunning
}
