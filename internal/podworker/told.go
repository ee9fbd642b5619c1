package podworker

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/format"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime"
)

// told turns what happens to a pod into events as `kubectl describe` shows
// them, with the kubelet's reasons and words, and remembers what it has told so
// that nothing is told twice. It belongs to the worker's goroutine.
//
// Pulling and Pulled come from the runtime: only it knows whether it pulls.
// Unhealthy comes from whoever runs the probes: it is told of each check.
type told struct {
	killing map[string]string // by name: the container last told to be killed
	reasons []lifecycle.Reason
}

// recorder records for the worker's pod.
func (w *Worker) recorder() podruntime.Recorder { return w.cfg.Recorder }

// started tells that an action has begun.
func (t *told) started(r podruntime.Recorder, pod *corev1.Pod, a lifecycle.Action) {
	switch a.Kind {
	case lifecycle.RunPreStop, lifecycle.StopContainer:
		if t.killing[a.Container] == a.ContainerID {
			return // the hook and each new deadline are the same killing
		}
		if t.killing == nil {
			t.killing = make(map[string]string)
		}
		t.killing[a.Container] = a.ContainerID
		message := a.Why
		if message == "" {
			message = "Stopping container " + a.Container
		}
		r.Record(podruntime.PodRef(pod, a.Container), corev1.EventTypeNormal, "Killing", message)
	case lifecycle.CreateSandbox:
		if a.Attempt > 0 {
			r.Record(podruntime.PodRef(pod, ""), corev1.EventTypeNormal, "SandboxChanged",
				"Pod sandbox changed, it will be killed and re-created.")
		}
	default:
	}
}

// ended tells how an action ended; failed is nil where it succeeded.
func (t *told) ended(r podruntime.Recorder, pod *corev1.Pod, a lifecycle.Action, result podruntime.Result, failed *lifecycle.Failed) {
	normal := func(reason, message string) {
		r.Record(podruntime.PodRef(pod, a.Container), corev1.EventTypeNormal, reason, message)
	}
	warn := func(reason, message string) {
		r.Record(podruntime.PodRef(pod, a.Container), corev1.EventTypeWarning, reason, message)
	}
	if failed == nil {
		if a.Kind == lifecycle.StartContainer {
			normal("Created", "Container created")
			normal("Started", "Container started")
		}
		return
	}
	switch a.Kind {
	case lifecycle.PrepareVolumes:
		warn("FailedMount", failed.Message)
	case lifecycle.CreateSandbox:
		warn("FailedCreatePodSandBox", "Failed to create pod sandbox: "+failed.Message)
	case lifecycle.PullImage:
		t.pullFailed(warn, pod, a, failed)
	case lifecycle.StartContainer:
		if result.ContainerID != "" {
			normal("Created", "Container created")
		}
		warn("Failed", "Error: "+failed.Message)
	case lifecycle.RunPostStart:
		warn("FailedPostStartHook", failed.Message)
	case lifecycle.RunPreStop:
		warn("FailedPreStopHook", failed.Message)
	case lifecycle.StopContainer, lifecycle.StopSandbox, lifecycle.RemoveSandbox, lifecycle.RemovePod:
		warn("FailedKillPod", failed.Message)
	case lifecycle.RemoveContainer:
	}
}

func (t *told) pullFailed(warn func(reason, message string), pod *corev1.Pod, a lifecycle.Action, failed *lifecycle.Failed) {
	image := ""
	if c := containerOf(&pod.Spec, a.Container); c != nil {
		image = c.Image
	}
	switch failed.Reason {
	case lifecycle.ReasonErrImageNeverPull:
		warn("ErrImageNeverPull", failed.Message)
	case lifecycle.ReasonInvalidImageName:
		warn("InspectFailed", failed.Message)
	default:
		warn("Failed", fmt.Sprintf("Failed to pull image %q: %s", image, failed.Message))
	}
	warn("Failed", "Error: "+failed.Reason)
}

// decided tells of waits that have begun with this decision.
func (t *told) decided(r podruntime.Recorder, pod *corev1.Pod, reasons []lifecycle.Reason) {
	for _, reason := range reasons {
		if t.knows(reason) {
			continue
		}
		ref := podruntime.PodRef(pod, reason.Container)
		switch reason.Code {
		case lifecycle.ReasonCrashLoopBackOff:
			r.Record(ref, corev1.EventTypeWarning, "BackOff", fmt.Sprintf(
				"Back-off restarting failed container %s in pod %s", reason.Container, format.Pod(pod)))
		case lifecycle.ReasonImagePullBackOff:
			r.Record(ref, corev1.EventTypeNormal, "BackOff", reason.Message)
			r.Record(ref, corev1.EventTypeWarning, "Failed", "Error: "+lifecycle.ReasonImagePullBackOff)
		default:
		}
	}
	t.reasons = reasons
}

// knows says whether the last decision had the same code for the same container.
func (t *told) knows(reason lifecycle.Reason) bool {
	for _, old := range t.reasons {
		if old.Code == reason.Code && old.Container == reason.Container {
			return true
		}
	}
	return false
}
