package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// History is what the runtime can't tell about a pod: it outlives containers
// and the agent. It is written to disk (as JSON) after each Apply that changed
// it. The zero value is the history of a pod never seen before.
type History struct {
	// Began is when the pod was first decided on; its active deadline counts
	// from here.
	Began time.Time `json:"began,omitzero"`
	// SandboxAttempts counts the sandboxes made: the next has this number.
	SandboxAttempts int `json:"sandboxAttempts,omitempty"`
	// Containers is by container name.
	Containers map[string]ContainerHistory `json:"containers,omitempty"`
	// Failures are the last failures of actions that concern the whole pod,
	// by kind; a success removes its kind.
	Failures map[ActionKind]FailureHistory `json:"failures,omitempty"`
	// Termination is set once the end of the pod was begun.
	Termination *Termination `json:"termination,omitempty"`
	// SandboxMadeAt is when the last sandbox was made.
	SandboxMadeAt time.Time `json:"sandboxMadeAt,omitzero"`
	// StoppedSandbox is the last one stopped. A sandbox that is not ready and
	// was not stopped may still hold its network.
	StoppedSandbox string `json:"stoppedSandbox,omitempty"`
	// VolumesFor is the sandbox attempt, plus one, that the volumes were last
	// prepared for; 0: nothing is prepared.
	VolumesFor int `json:"volumesFor,omitempty"`
	// RestartAll is the round of "restart all containers": containers with a
	// lower round are dead to the pod.
	RestartAll int `json:"restartAll,omitempty"`
	// Status is the last status decided: phase never goes back from it,
	// transition times and container states are kept from it.
	Status *corev1.PodStatus `json:"status,omitempty"`
}

// ContainerHistory is what is known of all containers of one name.
type ContainerHistory struct {
	// Attempts counts the starts that were begun: the next one has this number.
	Attempts int `json:"attempts,omitempty"`
	// RestartCount is the number of the newest attempt that came to be.
	RestartCount int `json:"restartCount,omitempty"`
	// Starting says that the newest start was begun and its end not seen.
	Starting bool `json:"starting,omitempty"`
	// StartedIn is the sandbox in which the newest start was begun, Round is
	// History.RestartAll then.
	StartedIn string `json:"startedIn,omitempty"`
	Round     int    `json:"round,omitempty"`
	// ID is the container of the newest attempt, once known; Seen says that it
	// was observed, MadeAt when its start ended.
	ID     string    `json:"id,omitempty"`
	Seen   bool      `json:"seen,omitempty"`
	MadeAt time.Time `json:"madeAt,omitzero"`
	// OnlyMade says that it was last seen as created, and that no start of it has
	// ended since: unless one is under way, it never ran.
	OnlyMade bool `json:"onlyMade,omitempty"`
	// Stepped is how far the clock was set while the newest attempt ran: the
	// runtime tells its start by the clock of then.
	Stepped time.Duration `json:"stepped,omitempty"`
	// Exit is how the newest attempt ended, once seen; LastExit how the one
	// before did. They outlive the containers.
	Exit     *Exit `json:"exit,omitempty"`
	LastExit *Exit `json:"lastExit,omitempty"`
	// Backoff is the wait before the next start.
	Backoff BackoffHistory `json:"backoff,omitzero"`
	// Image is what the last pull was of, as the spec named it. ImageRef is what
	// came of it for attempt PulledFor-1; 0: nothing did.
	Image     string `json:"image,omitempty"`
	PulledFor int    `json:"pulledFor,omitempty"`
	ImageRef  string `json:"imageRef,omitempty"`
	// Pull and Start are the last failures to pull and to start; nil after a
	// success.
	Pull  *FailureHistory `json:"pull,omitempty"`
	Start *FailureHistory `json:"start,omitempty"`
	// StopFailure is the last failure to stop or remove; nil after a success.
	StopFailure *FailureHistory `json:"stopFailure,omitempty"`
	// PostStart and PreStop are the hooks of container ID.
	PostStart HookHistory `json:"postStart,omitzero"`
	PreStop   HookHistory `json:"preStop,omitzero"`
	// Stop is the begun stop of container ID; nil: none.
	Stop *StopHistory `json:"stop,omitempty"`
	// Probes are the outcomes for container ID.
	Probes map[ProbeKind]ProbeHistory `json:"probes,omitempty"`
}

// StopHistory is the begun stop of one container.
type StopHistory struct {
	Since time.Time `json:"since"`
	// Deadline is when its grace period ends.
	Deadline time.Time `json:"deadline"`
	// SignalAt is when the stop signal was due; zero: not yet.
	SignalAt time.Time `json:"signalAt,omitzero"`
	Why      string    `json:"why,omitempty"`
	Restart  bool      `json:"restart,omitempty"`
}

// ProbeHistory is the last outcome of a probe.
type ProbeHistory struct {
	Outcome Outcome   `json:"outcome"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// HookHistory says that a hook has ended, and how.
type HookHistory struct {
	Done    bool   `json:"done,omitempty"`
	Failed  bool   `json:"failed,omitempty"`
	Message string `json:"message,omitempty"`
}

// Exit is how a container ended.
type Exit struct {
	ID         string    `json:"id"`
	Attempt    int       `json:"attempt"`
	Code       int32     `json:"code"`
	Unknown    bool      `json:"unknown,omitempty"`
	Signal     int32     `json:"signal,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// In is the sandbox it ran in, Round the History.RestartAll it belonged to.
	In    string `json:"in,omitempty"`
	Round int    `json:"round,omitempty"`
	// Restart says that it was stopped in order to start again, whatever its
	// restart policy says.
	Restart bool `json:"restart,omitempty"`
}

// BackoffHistory is the growing wait between restarts.
type BackoffHistory struct {
	// Wait is the delay that the next restart must keep since the exit.
	Wait time.Duration `json:"wait,omitempty"`
	// Since is the exit that Wait counts from.
	Since time.Time `json:"since,omitzero"`
}

// FailureHistory is a run of failures of one action.
type FailureHistory struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Count   int       `json:"count"`
	At      time.Time `json:"at"`
	// Until is when it may be tried again.
	Until time.Time `json:"until"`
}

// Termination is the begun end of a pod.
type Termination struct {
	// At is when it began. Deadline is when the last container is killed; it
	// can only come nearer.
	At       time.Time     `json:"at"`
	Grace    time.Duration `json:"grace"`
	Deadline time.Time     `json:"deadline"`
	// Reason and Message go to the pod's status where the node ended it
	// (Evicted, DeadlineExceeded …); empty after a deletion or completion.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Failed says that the pod ends as Failed whatever its containers did.
	Failed     bool                  `json:"failed,omitempty"`
	Conditions []corev1.PodCondition `json:"conditions,omitempty"`
}
