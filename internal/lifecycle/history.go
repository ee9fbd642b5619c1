package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// History is what the runtime can't tell about a pod: it outlives containers
// and the agent. It is written to disk (as JSON) after each Apply that changed
// it. The zero value is the history of a pod never seen before.
type History struct {
	// SandboxAttempts counts the sandboxes whose creation was started.
	SandboxAttempts int `json:"sandboxAttempts,omitempty"`
	// Sandbox is the sandbox that the last containers were started in.
	Sandbox string `json:"sandbox,omitempty"`
	// Containers is by container name.
	Containers map[string]ContainerHistory `json:"containers,omitempty"`
	// Failures are the last failures of actions that concern the whole pod,
	// by kind; a success removes its kind.
	Failures map[ActionKind]FailureHistory `json:"failures,omitempty"`
	// Termination is set once the end of the pod was begun.
	Termination *Termination `json:"termination,omitempty"`
	// Volumes says that the pod's volumes were prepared since it began.
	Volumes bool `json:"volumes,omitempty"`
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
	// ID is the container of the newest attempt, once seen.
	ID string `json:"id,omitempty"`
	// StartedIn is the sandbox in which the newest start was begun.
	StartedIn string `json:"startedIn,omitempty"`
	// Hash is the hash of the spec that the newest attempt was begun with.
	Hash string `json:"hash,omitempty"`
	// Round is History.RestartAll when the newest attempt was begun.
	Round int `json:"round,omitempty"`
	// Starting says that the newest start was begun and its end not seen.
	Starting bool `json:"starting,omitempty"`
	// Exit is how the newest attempt ended, once seen. It outlives the removal
	// of the container. LastExit is the one before.
	Exit     *Exit `json:"exit,omitempty"`
	LastExit *Exit `json:"lastExit,omitempty"`
	// Ended counts the exits seen, for back-off; see restart.go.
	Backoff BackoffHistory `json:"backoff,omitzero"`
	// Pull is the outcome of the last pull, for attempt PulledFor.
	PulledFor int             `json:"pulledFor,omitempty"` // attempt+1; 0: none
	ImageRef  string          `json:"imageRef,omitempty"`
	Pull      *FailureHistory `json:"pull,omitempty"`
	// Start is the last failure to start.
	Start *FailureHistory `json:"start,omitempty"`
	// PostStart and PreStop are the hooks of container ID.
	PostStart HookState `json:"postStart,omitempty"`
	PreStop   HookState `json:"preStop,omitempty"`
	// PostStartMessage is why postStart failed.
	PostStartMessage string `json:"postStartMessage,omitempty"`
	// StopSince and StopWhy: since when and why container ID is being stopped
	// while the pod goes on. Zero: it is not.
	StopSince time.Time `json:"stopSince,omitzero"`
	StopWhy   string    `json:"stopWhy,omitempty"`
	// Probes are the outcomes for container ID.
	Probes map[ProbeKind]ProbeHistory `json:"probes,omitempty"`
}

// ProbeHistory is the last outcome of a probe.
type ProbeHistory struct {
	Outcome Outcome   `json:"outcome"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// HookState says how far a hook is.
type HookState string

// The states of a hook. The zero value: not run.
const (
	HookNone   HookState = ""
	HookDone   HookState = "done"
	HookFailed HookState = "failed"
)

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
	At       time.Time `json:"at"`
	Deadline time.Time `json:"deadline"`
	// Reason and Message go to the pod's status where the node ended it
	// (Evicted, DeadlineExceeded …); empty after a deletion or completion.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Failed says that the pod ends as Failed whatever its containers did.
	Failed     bool                  `json:"failed,omitempty"`
	Conditions []corev1.PodCondition `json:"conditions,omitempty"`
}
