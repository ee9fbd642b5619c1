package lifecycle

import "time"

// Event is something that happened, to be folded into a History.
type Event interface{ event() }

// ActionStarted is recorded, and written to disk, before the action begins.
type ActionStarted struct {
	Action Action
	At     time.Time
}

// ActionEnded says how an action ended. Cancelled ones end too.
type ActionEnded struct {
	Action Action
	At     time.Time
	// Err is nil on success.
	Err *Failed
	// ImageRef and ImageID are PullImage's result; ContainerID is
	// StartContainer's, also of a container that was made and could not start.
	ImageRef    string
	ContainerID string
	// Canceled says that the action was no longer wanted; Err is then no
	// failure of the pod and causes no back-off.
	Canceled bool
}

// Failed is why an action failed, in words that the status can carry.
type Failed struct {
	// Reason is from reason.go, for example ErrImagePull.
	Reason  string
	Message string
}

// Error makes Failed an error, so that runtimes can return it.
func (f *Failed) Error() string { return f.Reason + ": " + f.Message }

// Looked says what the runtime was seen to hold, and which actions were under
// way then: a start that was begun and is neither is one that was interrupted.
type Looked struct {
	Observed Observed
	UnderWay []Key
}

// Probed says that a probe's outcome changed.
type Probed struct {
	Key     ProbeKey
	Outcome Outcome
	// Message is the output or error of the check that decided it.
	Message string
	At      time.Time
}

// Decided remembers what must not go back: phase, conditions, statuses.
type Decided struct {
	Decision Decision
	At       time.Time
}

// ClockStepped says that the wall clock was set: all times remembered move
// with it, so that no wait becomes longer or shorter.
type ClockStepped struct{ By time.Duration }

// SourcesChanged says that something a failed action may have lacked has
// changed (a ConfigMap, a Secret, an image): it may be tried again at once.
type SourcesChanged struct{}

func (ActionStarted) event()  {}
func (ActionEnded) event()    {}
func (Looked) event()         {}
func (Probed) event()         {}
func (Decided) event()        {}
func (SourcesChanged) event() {}
func (ClockStepped) event()   {}
