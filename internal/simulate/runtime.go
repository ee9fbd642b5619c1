package simulate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/lifecycle"
)

// effect changes the model runtime as act says.
func (a *agent) effect(pod *corev1.Pod, act lifecycle.Action) (*lifecycle.Failed, string) {
	switch act.Kind {
	case lifecycle.PrepareVolumes:
		a.volumes, a.leftovers = true, true
	case lifecycle.CreateSandbox:
		a.removeSandboxes(func(s *sandbox) bool { return s.Attempt == act.Attempt })
		a.sandboxes = append(a.sandboxes, &sandbox{lifecycle.Sandbox{ID: a.id("sandbox"), Attempt: act.Attempt, Ready: true,
			CreatedAt: a.now, IPs: []string{"198.51.100.7"}, HostNetwork: pod.Spec.HostNetwork}})
		a.leftovers = true
	case lifecycle.StartContainer:
		return a.startContainer(pod, act)
	case lifecycle.RunPostStart, lifecycle.RunPreStop:
		c := a.findContainer(act.ContainerID)
		if c == nil || c.State != lifecycle.ContainerRunning || a.chance(6) {
			return &lifecycle.Failed{Reason: lifecycle.ReasonPostStartHookError, Message: "the hook failed"}, ""
		}
	case lifecycle.RemoveContainer:
		a.containers = slices.DeleteFunc(a.containers, func(c *container) bool {
			return c.ID == act.ContainerID && c.State != lifecycle.ContainerRunning
		})
	case lifecycle.StopSandbox:
		for _, c := range a.containers {
			if c.SandboxID == act.SandboxID {
				a.exit(c, 137)
			}
		}
		if s := a.findSandbox(act.SandboxID); s != nil {
			s.Ready = false
		}
	case lifecycle.RemoveSandbox:
		a.removeSandboxes(func(s *sandbox) bool { return s.ID == act.SandboxID })
	case lifecycle.RemovePod:
		a.check.removed()
		a.volumes, a.leftovers = false, false
	case lifecycle.PullImage, lifecycle.StopContainer:
	}
	return nil, ""
}

func (a *agent) removeSandboxes(gone func(*sandbox) bool) {
	a.sandboxes = slices.DeleteFunc(a.sandboxes, func(s *sandbox) bool {
		if !gone(s) {
			return false
		}
		for _, c := range a.containers {
			if c.SandboxID == s.ID {
				a.exit(c, 137)
			}
		}
		a.containers = slices.DeleteFunc(a.containers, func(c *container) bool { return c.SandboxID == s.ID })
		return true
	})
}

// makeContainer is the first half of a start: the container is there and does not
// run. One of the same attempt that an earlier try left so is made anew.
func (a *agent) makeContainer(pod *corev1.Pod, act lifecycle.Action) (*container, *lifecycle.Failed) {
	s := a.findSandbox(act.SandboxID)
	if s == nil || !s.Ready {
		return nil, &lifecycle.Failed{Reason: lifecycle.ReasonCreateContainerError, Message: "there is no such sandbox"}
	}
	for _, c := range a.containers {
		if c.Name == act.Container && c.Attempt == act.Attempt && c.State != lifecycle.ContainerCreated {
			// A runtime reserves the name of an attempt: the same start twice is one.
			return c, nil
		}
	}
	a.unmakeContainer(act)
	c := &container{Container: lifecycle.Container{ID: a.id(act.Container), Name: act.Container, SandboxID: act.SandboxID,
		Attempt: act.Attempt, State: lifecycle.ContainerCreated, CreatedAt: a.now, Image: act.ImageRef, ImageID: "sha256:" + act.ImageRef}}
	for _, spec := range allContainers(pod) {
		if spec.Name == act.Container {
			c.Hash = lifecycle.ContainerHash(spec)
		}
	}
	a.containers = append(a.containers, c)
	return c, nil
}

// unmakeContainer removes what a start has made and not run.
func (a *agent) unmakeContainer(act lifecycle.Action) {
	a.containers = slices.DeleteFunc(a.containers, func(c *container) bool {
		return c.Name == act.Container && c.Attempt == act.Attempt && c.State == lifecycle.ContainerCreated
	})
}

// made is the container that a start has made and not run.
func (a *agent) made(act lifecycle.Action) *container {
	for _, c := range a.containers {
		if c.Name == act.Container && c.Attempt == act.Attempt && c.State == lifecycle.ContainerCreated {
			return c
		}
	}
	return nil
}

func (a *agent) startContainer(pod *corev1.Pod, act lifecycle.Action) (*lifecycle.Failed, string) {
	c := a.made(act)
	if c == nil {
		var err *lifecycle.Failed
		if c, err = a.makeContainer(pod, act); err != nil {
			return err, ""
		}
	}
	if s := a.findSandbox(act.SandboxID); c.State == lifecycle.ContainerCreated && (s == nil || !s.Ready) {
		return &lifecycle.Failed{Reason: lifecycle.ReasonRunContainerError, Message: "the sandbox is not ready"}, c.ID
	}
	if c.State != lifecycle.ContainerCreated {
		return nil, c.ID
	}
	if a.chance(20) {
		// Made, and could not start: as an OCI runtime does with a wrong command.
		c.State = lifecycle.ContainerExited
		c.ExitCode, c.Reason, c.FinishedAt = 128, lifecycle.ReasonContainerCannotRun, a.now
		return &lifecycle.Failed{Reason: lifecycle.ReasonRunContainerError, Message: "no such file"}, c.ID
	}
	c.State, c.StartedAt, c.ran = lifecycle.ContainerRunning, a.now, true
	a.check.started(c)
	runs := a.scripts[act.Container].runs
	if r := runs[min(act.Attempt, len(runs)-1)]; r.For > 0 {
		a.planExit(c, r.For, r.Code)
	}
	a.say("%s runs as %s", act.Container, c.ID)
	return nil, c.ID
}

// stopping plays StopContainer: signal, wait, kill.
func (a *agent) stopping(wk *work, e fault.Effect, life int, end func(*lifecycle.Failed, string)) {
	wk.cancel = func() {
		a.after(0, func() { end(&lifecycle.Failed{Reason: "Canceled", Message: "canceled"}, "") })
	}
	begin := a.between(time.Millisecond, 10*time.Millisecond) + e.Slow
	a.after(begin, func() {
		if wk.canceled || life != a.life {
			return
		}
		if e.Fail {
			end(&lifecycle.Failed{Reason: "KillContainerError", Message: "the model made it fail"}, "")
			return
		}
		c := a.findContainer(wk.action.ContainerID)
		if c == nil || c.State != lifecycle.ContainerRunning {
			end(nil, "")
			return
		}
		a.signal(c)
		goesOn := a.chance(2) // whether the runtime goes on with it when the agent dies
		var poll func()
		poll = func() {
			switch {
			case wk.canceled || life != a.life && !goesOn:
			case c.State != lifecycle.ContainerRunning:
				end(nil, "")
			case !a.now.Before(wk.action.Until):
				a.exit(c, 137)
				end(nil, "")
			default:
				a.after(min(wk.action.Until.Sub(a.now), 100*time.Millisecond), poll)
			}
		}
		poll()
	})
}
