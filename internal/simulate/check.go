package simulate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// checker holds a run against the properties of the core.
type checker struct {
	a          *agent
	violations []string

	status    *corev1.PodStatus // last reported
	starts    map[string]int    // processes started, by container
	ran       map[string]bool   // by id
	began     func(lifecycle.Action)
	same      time.Time // the instant, and how many actions began at it
	count     int
	quarter   time.Duration // the quarter of an hour, and how many actions began in it
	inQuarter int
	// ends says that the pod's end was begun, endsBy when its grace period is over,
	// in time since the beginning of the run.
	ends   bool
	endsBy time.Duration
	fresh  int // decisions that differed from the one before
}

func newChecker(a *agent) *checker {
	c := &checker{a: a, starts: map[string]int{}, ran: map[string]bool{}}
	c.began = c.actionBegan
	return c
}

func (c *checker) fail(format string, args ...any) {
	v := fmt.Sprintf("%s: %s", c.a.now.Sub(epoch), fmt.Sprintf(format, args...))
	c.violations = append(c.violations, v)
	c.a.say("VIOLATION %s", fmt.Sprintf(format, args...))
}

// actionBegan: nothing starts in a pod that ends; nothing spins.
func (c *checker) actionBegan(act lifecycle.Action) {
	if c.a.now.Equal(c.same) {
		if c.count++; c.count > 100 {
			c.fail("livelock: more than 100 actions at one instant, the last %s", act.Key())
			c.count = 0
		}
	} else {
		c.same, c.count = c.a.now, 0
	}
	for _, k := range c.a.underWay() {
		if k != act.Key() && atOdds(act.Key(), k) {
			c.fail("%s begins while %s is under way", act.Key(), k)
		}
	}
	if q := c.a.elapsed().Truncate(15 * time.Minute); q != c.quarter {
		c.quarter, c.inQuarter = q, 0
	}
	if c.inQuarter++; c.inQuarter == mostInQuarter {
		c.fail("livelock: %d actions within a quarter of an hour, the last %s", mostInQuarter, act.Key())
	}
	if t := c.a.history.Termination; t != nil {
		if act.Kind == lifecycle.StopContainer {
			if lasts := act.Until.Sub(c.a.now); lasts > max(c.graceLeft(t), 0)+overtime {
				c.fail("%s may last %s, the pod's grace period only %s", act.Key(), lasts, c.graceLeft(t))
			}
		}
		switch act.Kind {
		case lifecycle.StartContainer, lifecycle.CreateSandbox, lifecycle.PullImage, lifecycle.PrepareVolumes, lifecycle.RunPostStart:
			c.fail("%s begins although the pod ends", act.Key())
		default:
		}
	}
}

// atOdds says that action a must not begin while b is under way: what b does late
// would undo it, or be undone.
func atOdds(a, b lifecycle.Key) bool {
	switch a.Kind {
	case lifecycle.RemovePod:
		return b.Kind == lifecycle.PrepareVolumes || b.Kind == lifecycle.CreateSandbox || b.Kind == lifecycle.StartContainer
	case lifecycle.PrepareVolumes:
		return b.Kind == lifecycle.RemovePod
	case lifecycle.StopSandbox, lifecycle.RemoveSandbox:
		return b.Kind == lifecycle.StartContainer && b.ID == a.ID
	case lifecycle.CreateSandbox:
		return b.Kind == lifecycle.CreateSandbox || b.Kind == lifecycle.RemovePod
	case lifecycle.StartContainer:
		return b.Kind == lifecycle.StartContainer && b.Container == a.Container
	case lifecycle.RemoveContainer:
		return b.Kind == lifecycle.StartContainer && b.Container == a.Container && b.Attempt == a.Attempt
	default:
		return false
	}
}

// mostInQuarter is more than a pod of six containers does in a quarter of an
// hour, each starting and failing as often as its waits let it.
const mostInQuarter = 1000

// overtime is how much longer than its grace period a pod may take to stop: a
// hook that used it all up leaves this to the stop signal (kubernetes#115817).
const overtime = 2 * time.Second

// graceLeft is what is left of a pod's grace period by the time that has really
// passed since its end was begun.
func (c *checker) graceLeft(t *lifecycle.Termination) time.Duration {
	by := c.a.elapsed() + t.Grace
	if !c.ends || by < c.endsBy {
		c.ends, c.endsBy = true, by
	}
	return c.endsBy - c.a.elapsed()
}

// started: one live container of a name, from the image of its spec; the order of
// init containers, and the promise of Never.
func (c *checker) started(x *container) {
	a := c.a
	for _, o := range a.live() {
		if o != x && o.Name == x.Name {
			c.fail("two live containers of %s: %s and %s", x.Name, o.ID, x.ID)
		}
	}
	if x.Hash != lifecycle.ContainerHash(&corev1.Container{Name: x.Name, Image: x.Image}) {
		c.fail("%s runs image %s, which is not the one of its spec", x.ID, x.Image)
	}
	c.starts[x.Name]++
	c.ran[x.ID] = true
	spec, init := a.spec(x.Name)
	// Each round of "restart all containers" is a life of its own, and so is
	// each image.
	lives := 1 + a.history.RestartAll
	if spec.Image == "changed" {
		lives++
	}
	if n := c.starts[x.Name]; n > lives && never(a.pod, spec) && len(spec.RestartPolicyRules) == 0 {
		c.fail("%s must never run twice and was started %d times in %d lives", x.Name, n, lives)
	}
	for i := range a.pod.Spec.InitContainers {
		p := &a.pod.Spec.InitContainers[i]
		if init && p.Name == x.Name {
			break
		}
		if !c.passed(p, x) {
			c.fail("%s starts before init container %s is through", x.Name, p.Name)
		}
	}
}

func (c *checker) passed(p *corev1.Container, x *container) bool {
	sidecar := p.RestartPolicy != nil && *p.RestartPolicy == corev1.ContainerRestartPolicyAlways
	if sidecar {
		return c.starts[p.Name] > 0
	}
	if never(c.a.pod, p) && c.starts[p.Name] > 0 {
		return true // it may have run in an earlier sandbox
	}
	for _, o := range c.a.containers {
		if o.Name == p.Name && o.SandboxID == x.SandboxID && o.State == lifecycle.ContainerExited {
			return true
		}
	}
	return false
}

func never(pod *corev1.Pod, c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy == corev1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever
}

// signalled: at the pod's end, sidecars are told after all that started later.
func (c *checker) signalled(x *container) {
	t := c.a.history.Termination
	if t == nil || !c.a.now.Before(t.Deadline) {
		return
	}
	spec, init := c.a.spec(x.Name)
	if !init || spec.RestartPolicy == nil || *spec.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		return
	}
	if h := c.a.history.Containers[x.Name]; h.Stop != nil && h.Stop.Since.Before(t.At) {
		return // it was being stopped for itself
	}
	for _, o := range c.a.live() {
		_, oInit := c.a.spec(o.Name)
		if !oInit || c.a.index(o.Name) > c.a.index(x.Name) {
			c.fail("sidecar %s is told to stop while %s runs", x.Name, o.Name)
		}
	}
}

// removed: the pod's things go last.
func (c *checker) removed() {
	if n := len(c.a.live()); n > 0 {
		c.fail("volumes are removed while %d containers run", n)
	}
}

// probing: startup alone first; none but readiness at the end.
func (c *checker) probing(p lifecycle.Probe) {
	x := c.a.findContainer(p.Key.ContainerID)
	if x == nil || x.State != lifecycle.ContainerRunning {
		if c.a.observed.At.Equal(c.a.now) {
			c.fail("%s probe of %s, which does not run", p.Key.Kind, p.Key.ContainerID)
		}
		return
	}
	if c.a.history.Termination != nil && p.Key.Kind != lifecycle.ReadinessProbe {
		c.fail("%s probe of %s while the pod ends", p.Key.Kind, p.Container)
	}
}

// forget: a new agent may report what an old one had not written down.
func (c *checker) forget() {
	c.ends = false // the next agent may begin the end anew
	if h := c.a.history.Status; h != nil {
		c.status = h.DeepCopy()
	} else {
		c.status = nil
	}
}

func (a *agent) spec(name string) (spec *corev1.Container, init bool) {
	for i := range a.pod.Spec.InitContainers {
		if a.pod.Spec.InitContainers[i].Name == name {
			return &a.pod.Spec.InitContainers[i], true
		}
	}
	for i := range a.pod.Spec.Containers {
		if a.pod.Spec.Containers[i].Name == name {
			return &a.pod.Spec.Containers[i], false
		}
	}
	return nil, false
}

func (a *agent) index(name string) int {
	for i, c := range allContainers(a.pod) {
		if c.Name == name {
			return i
		}
	}
	return -1
}
