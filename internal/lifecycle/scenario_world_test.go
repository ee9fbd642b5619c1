package lifecycle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scenarioWorld is a pod with what runs of it, moved by commands.
type scenarioWorld struct {
	in       Input
	d        Decision
	actions  map[Key]Action // of what is under way
	canceled map[Key]bool
	did      []string // what was begun or cancelled since the last print
	ids      int

	// kept is the history as of the last look, and as JSON: nobody changes it.
	kept     History
	keptText string

	unchecked  bool // decisions are not held against their properties
	violations []string
}

func newScenarioWorld() *scenarioWorld {
	return &scenarioWorld{
		in: Input{
			Now:   time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
			Facts: Facts{RuntimeName: "model", HostIPs: []string{"192.0.2.1"}},
		},
		actions: map[Key]Action{}, canceled: map[Key]bool{},
	}
}

// do carries out one command.
//
//	pod OPTION…                  a new pod, see podFrom
//	settle [but KIND[:NAME] …]   all that is wanted succeeds, again and again, but these
//	ended KIND[:NAME] [REASON [MESSAGE]]   one action ends, well or with a failure
//	made NAME REASON [MESSAGE]   a start ends with a failure and leaves a container that ended
//	appears NAME                 a start takes effect, and does not end
//	created NAME                 a start has made the container, and does not end
//	exit NAME CODE [REASON [MESSAGE]]      a container ends; CODE "unknown"
//	stray NAME ATTEMPT           a container runs that nobody started
//	vanish NAME                  a container is gone from the runtime
//	state NAME STATE             the runtime says another state of a container
//	sandbox lost|notready|ownnetwork       the sandbox and all in it is gone; is not as it should be
//	probe NAME KIND OUTCOME      a probe turns
//	delete [GRACE]               the pod is deleted
//	stop REASON [GRACE]          the node ends the pod
//	halt                         the user ends the pod, which stays
//	reject REASON                admission refuses the pod
//	image NAME IMAGE             the spec changes
//	ephemeral NAME               an ephemeral container is added
//	gate TYPE STATUS             somebody writes a condition
//	tick DURATION                time passes
//	clock DURATION               the clock is set, and the agent sees it
//	restart [DURATION]           the agent dies and starts again
//	sources                      something a failed action may have lacked changed
func (w *scenarioWorld) do(line string) error {
	f := strings.Fields(line)
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	rest := func(i int) string { return strings.Join(f[min(i, len(f)):], " ") }
	now := w.in.Now
	switch f[0] {
	case "made", "appears", "created":
		if _, ok := w.underWay("StartContainer:" + arg(1)); !ok {
			return fmt.Errorf("no start of %s is under way", arg(1))
		}
	case "exit", "vanish", "state":
		if w.newest(arg(1)) == nil {
			return fmt.Errorf("no container %s", arg(1))
		}
	}
	switch f[0] {
	case "pod":
		pod, err := podFrom(strings.TrimPrefix(line, "pod "))
		w.in.Pod = pod
		return err
	case "settle":
		w.settle(f[1:])
	case "ended":
		return w.end(arg(1), arg(2), rest(3), "")
	case "made":
		c := w.start(arg(1))
		c.State, c.ExitCode, c.FinishedAt, c.Reason = ContainerExited, 128, now, "ContainerCannotRun"
		return w.end("StartContainer:"+arg(1), arg(2), rest(3), c.ID)
	case "appears":
		w.start(arg(1))
	case "created":
		w.start(arg(1)).State = ContainerCreated
	case "exit":
		c := w.newest(arg(1))
		c.State, c.FinishedAt, c.Reason, c.Message = ContainerExited, now, arg(3), rest(4)
		if arg(2) == "unknown" {
			c.ExitUnknown = true
			return nil
		}
		code, err := strconv.Atoi(arg(2))
		c.ExitCode = int32(code)
		return err
	case "stray":
		n, err := strconv.Atoi(arg(2))
		box := w.in.Observed.Sandboxes[len(w.in.Observed.Sandboxes)-1]
		w.in.Observed.Containers = append(w.in.Observed.Containers, Container{ID: arg(1) + "-stray", Name: arg(1), Attempt: n,
			SandboxID: box.ID, State: ContainerRunning, CreatedAt: now, StartedAt: now})
		return err
	case "vanish":
		id := w.newest(arg(1)).ID
		w.in.Observed.Containers = slices.DeleteFunc(w.in.Observed.Containers, func(c Container) bool { return c.ID == id })
	case "state":
		w.newest(arg(1)).State = ContainerState(arg(2))
	case "sandbox":
		last := len(w.in.Observed.Sandboxes) - 1
		switch arg(1) {
		case "notready":
			w.in.Observed.Sandboxes[last].Ready = false
			return nil
		case "ownnetwork":
			w.in.Observed.Sandboxes[last].HostNetwork = false
			w.in.Observed.Sandboxes[last].IPs = []string{"198.51.100.7"}
			return nil
		}
		w.in.Observed.Sandboxes, w.in.Observed.Containers = nil, nil
	case "probe":
		w.in.History = w.in.History.Apply(Probed{
			Key:     ProbeKey{ContainerID: w.in.History.Containers[arg(1)].ID, Kind: ProbeKind(arg(2))},
			Outcome: Outcome(arg(3)), At: now,
		})
	case "delete":
		w.in.Pod = w.in.Pod.DeepCopy()
		g := podGrace(w.in.Pod)
		if arg(1) != "" {
			g, _ = time.ParseDuration(arg(1))
		}
		at, s := metav1.NewTime(now.Add(g)), int64(g/time.Second)
		w.in.Pod.DeletionTimestamp, w.in.Pod.DeletionGracePeriodSeconds = &at, &s
	case "stop":
		w.in.Stop = &Stop{Reason: arg(1), Message: "the node says so", Conditions: []corev1.PodCondition{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet"}}}
		if arg(2) != "" {
			g, err := time.ParseDuration(arg(2))
			w.in.Stop.Grace = &g
			return err
		}
	case "halt":
		w.in.Stop = &Stop{Reason: "Stopped", Message: "the user says so", AsDeleted: true}
	case "reject":
		w.in.Reject = &Reject{Reason: arg(1), Message: "it cannot run here"}
	case "image":
		w.in.Pod = w.in.Pod.DeepCopy()
		w.in.Pod.Generation++
		w.spec(arg(1)).Image = arg(2)
	case "ephemeral":
		w.in.Pod = w.in.Pod.DeepCopy()
		w.in.Pod.Spec.EphemeralContainers = append(w.in.Pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: arg(1), Image: "image"}})
	case "gate":
		w.in.Facts.Gates = []corev1.PodCondition{{Type: corev1.PodConditionType(arg(1)), Status: corev1.ConditionStatus(arg(2))}}
	case "tick":
		d, err := time.ParseDuration(arg(1))
		w.in.Now = now.Add(d)
		return err
	case "clock":
		d, err := time.ParseDuration(arg(1))
		w.in.Now = now.Add(d)
		w.in.History = w.in.History.Apply(ClockStepped{By: d})
		return err
	case "restart":
		if arg(1) != "" {
			d, err := time.ParseDuration(arg(1))
			if err != nil {
				return err
			}
			w.in.Now = now.Add(d)
		}
		w.in.UnderWay = nil
		clear(w.canceled)
		h, err := roundTrip(w.in.History)
		w.in.History = h
		return err
	case "sources":
		w.in.History = w.in.History.Apply(SourcesChanged{})
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

func (w *scenarioWorld) spec(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{w.in.Pod.Spec.InitContainers, w.in.Pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return &corev1.Container{Name: name, Image: "image"}
}

func (w *scenarioWorld) newest(name string) *Container {
	var n *Container
	for i := range w.in.Observed.Containers {
		if c := &w.in.Observed.Containers[i]; c.Name == name && (n == nil || c.Attempt > n.Attempt) {
			n = c
		}
	}
	return n
}

// underWay finds what is under way by "KIND" or "KIND:NAME".
func (w *scenarioWorld) underWay(what string) (Key, bool) {
	kind, name, _ := strings.Cut(what, ":")
	for _, k := range w.in.UnderWay {
		if string(k.Kind) == kind && (name == "" || k.Container == name) {
			return k, true
		}
	}
	return Key{}, false
}

// settle lets all that is under way succeed, until nothing new is wanted.
func (w *scenarioWorld) settle(args []string) {
	but := func(k Key) bool {
		return slices.ContainsFunc(args, func(a string) bool {
			kind, name, _ := strings.Cut(a, ":")
			return string(k.Kind) == kind && (name == "" || k.Container == name)
		})
	}
	for range 100 {
		w.look()
		i := slices.IndexFunc(w.in.UnderWay, func(k Key) bool { return !but(k) })
		if i < 0 {
			return
		}
		k := w.in.UnderWay[i]
		if w.canceled[k] {
			w.finish(k, ActionEnded{Err: &Failed{Reason: "Canceled"}, Canceled: true})
			continue
		}
		w.finish(k, ActionEnded{ContainerID: w.effect(w.actions[k]), ImageRef: "image"})
	}
	w.violations = append(w.violations, "it does not settle")
}

func (w *scenarioWorld) end(what, reason, message, id string) error {
	k, ok := w.underWay(what)
	if !ok {
		return fmt.Errorf("no %s is under way", what)
	}
	switch reason {
	case "":
		w.finish(k, ActionEnded{ContainerID: w.effect(w.actions[k]), ImageRef: "image"})
	case "Canceled":
		w.finish(k, ActionEnded{Err: &Failed{Reason: "Canceled"}, Canceled: true})
	default:
		w.finish(k, ActionEnded{Err: &Failed{Reason: reason, Message: message}, ContainerID: id})
	}
	return nil
}

func (w *scenarioWorld) finish(k Key, e ActionEnded) {
	w.in.UnderWay = slices.DeleteFunc(w.in.UnderWay, func(x Key) bool { return x == k })
	delete(w.canceled, k)
	e.Action, e.At = w.actions[k], w.in.Now
	w.in.History = w.in.History.Apply(e)
}

// start makes the container of the start that is under way.
func (w *scenarioWorld) start(name string) *Container {
	k, _ := w.underWay("StartContainer:" + name)
	o := &w.in.Observed
	for i := range o.Containers {
		if c := &o.Containers[i]; c.Name == name && c.Attempt == k.Attempt {
			if c.State == ContainerCreated {
				c.State, c.StartedAt = ContainerRunning, w.in.Now
			}
			return c
		}
	}
	w.ids++
	o.Containers = append(o.Containers, Container{
		ID: fmt.Sprintf("%s-%d", name, w.ids), Name: name, SandboxID: k.ID, Attempt: k.Attempt, Hash: ContainerHash(w.spec(name)),
		State: ContainerRunning, CreatedAt: w.in.Now, StartedAt: w.in.Now, Image: "image", ImageID: "sha256:1",
	})
	return &o.Containers[len(o.Containers)-1]
}

// effect is what an action that succeeds does.
func (w *scenarioWorld) effect(a Action) string {
	o := &w.in.Observed
	switch a.Kind {
	case PrepareVolumes:
		o.Leftovers = true
	case RemovePod:
		o.Leftovers = false
	case CreateSandbox:
		w.ids++
		s := Sandbox{ID: fmt.Sprintf("box-%d", w.ids), Attempt: a.Attempt, Ready: true, CreatedAt: w.in.Now,
			HostNetwork: w.in.Pod.Spec.HostNetwork}
		if !s.HostNetwork {
			s.IPs = []string{"198.51.100.7"}
		}
		o.Sandboxes = append(o.Sandboxes, s)
	case StartContainer:
		return w.start(a.Container).ID
	case StopContainer:
		for i := range o.Containers {
			if c := &o.Containers[i]; c.ID == a.ContainerID && c.State != ContainerExited {
				c.State, c.ExitCode, c.Signal, c.FinishedAt = ContainerExited, 143, 15, w.in.Now
			}
		}
	case StopSandbox:
		for i := range o.Sandboxes {
			if s := &o.Sandboxes[i]; s.ID == a.SandboxID {
				s.Ready = false
			}
		}
	case RemoveSandbox:
		o.Sandboxes = slices.DeleteFunc(o.Sandboxes, func(s Sandbox) bool { return s.ID == a.SandboxID })
	case RemoveContainer:
		o.Containers = slices.DeleteFunc(o.Containers, func(c Container) bool { return c.ID == a.ContainerID })
	case PullImage, RunPostStart, RunPreStop:
	}
	return ""
}
