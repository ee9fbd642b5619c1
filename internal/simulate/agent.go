package simulate

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/lifecycle"
)

// agent plays the pod's worker: observe, decide, make what runs equal to what is
// wanted.
type agent struct {
	*world
	pod     *corev1.Pod
	stop    *lifecycle.Stop
	history lifecycle.History
	// durable is the history as of the last write that was waited for; what
	// came later may be lost when the agent dies.
	durable  lifecycle.History
	observed lifecycle.Observed
	working  map[lifecycle.Key]*work
	probes   map[lifecycle.ProbeKey]bool
	decision lifecycle.Decision
	noted    *lifecycle.Decision // the last one that counts in hash
	timer    int                 // the number of the timer that counts
	life     int                 // the agent's life; what an earlier one began reports to nobody
	// dead says that no agent runs: nobody looks, and nobody sees the clock set.
	dead bool
	// lurking says that it dies in the middle of the next start.
	lurking bool
	// pending are the effects to come of what is under way, in the order begun.
	pending []*effect

	tellDecision func(*corev1.Pod, lifecycle.Decision)

	decisions, actions int
	hash               uint64
}

// effect is what an action does to the world, once.
type effect struct {
	do   func()
	done bool
}

func (e *effect) strike() {
	if !e.done {
		e.done = true
		e.do()
	}
}

type work struct {
	action   lifecycle.Action
	canceled bool
	cancel   func()
}

func (a *agent) underWay() []lifecycle.Key {
	return slices.SortedFunc(maps.Keys(a.working), lifecycle.Key.Compare)
}

func (a *agent) input() lifecycle.Input {
	return lifecycle.Input{
		Pod: a.pod, Stop: a.stop, Observed: a.observed, UnderWay: a.underWay(), History: a.history,
		Facts: lifecycle.Facts{RuntimeName: "model", HostIPs: []string{"192.0.2.1"}}, Now: a.now,
	}
}

// look is one turn of the worker's loop.
func (a *agent) look() {
	a.woken = false
	if a.faults.Active(a.faultTime(), fault.RuntimeGone) {
		a.after(time.Second, func() { a.woken = true })
		return
	}
	a.observed = a.observe()
	a.history = a.history.Apply(lifecycle.Looked{Observed: a.observed, UnderWay: a.underWay()})
	for round := 0; ; round++ {
		if round > 50 {
			a.check.fail("livelock: decisions keep starting actions: %v", a.decision.Work)
			return
		}
		in := a.input()
		d, h := lifecycle.Step(in)
		a.decisions++
		a.history = h
		a.check.decided(in, d, h, a.note(d))
		a.decision = d
		if a.tellDecision != nil {
			a.tellDecision(a.pod, d)
		}
		if !a.reconcile(d.Work) {
			break
		}
	}
	a.reconcileProbes(a.decision.Probes)
	a.timer++
	if t := a.decision.LookAgain; !t.IsZero() {
		n := a.timer
		a.after(t.Sub(a.now), func() {
			if n == a.timer {
				a.woken = true
			}
		})
	}
}

// note hashes what was decided, so that two runs can be compared, and says
// whether it is another decision than the one before.
func (a *agent) note(d lifecycle.Decision) (fresh bool) {
	if a.noted != nil && reflect.DeepEqual(*a.noted, d) {
		return false
	}
	old := a.noted
	a.noted = &d
	f := fnv.New64a()
	fmt.Fprintf(f, "%d %d", a.hash, a.now.UnixNano())
	for _, w := range d.Work {
		fmt.Fprintf(f, "|%v", w.Key())
	}
	if old == nil || !reflect.DeepEqual(old.Status, d.Status) {
		b, err := json.Marshal(d.Status)
		if err != nil {
			panic(err) // a PodStatus is always JSON
		}
		f.Write(b)
	}
	a.hash = f.Sum64()
	return true
}

func (a *agent) reconcile(want []lifecycle.Action) (again bool) {
	wanted := map[lifecycle.Key]bool{}
	for _, act := range want {
		k := act.Key()
		if _, ok := a.working[k]; !ok && !wanted[k] {
			a.begin(act)
			again = true
		}
		wanted[k] = true
	}
	for _, k := range a.underWay() {
		if wk := a.working[k]; !wanted[k] && !wk.canceled {
			wk.canceled = true
			a.say("cancel %s", k)
			wk.cancel()
		}
	}
	return again
}

// save writes the history; false: the disk is full, and what was written before
// stands.
func (a *agent) save() bool {
	if a.faults.Active(a.faultTime(), fault.DiskFull) {
		a.say("the history cannot be written")
		return false
	}
	a.durable = a.history // nobody changes a history; it goes through JSON when it is read
	return true
}

// begin starts an action: its effect comes after a while, or never.
func (a *agent) begin(act lifecycle.Action) {
	a.actions++
	a.check.began(act)
	a.history = a.history.Apply(lifecycle.ActionStarted{Action: act, At: a.now})
	if act.Kind == lifecycle.StartContainer && !a.save() {
		a.history = a.history.Apply(lifecycle.ActionEnded{Action: act, At: a.now, Err: &lifecycle.Failed{
			Reason: lifecycle.ReasonCreateContainerError, Message: "its start cannot be recorded"}})
		return
	}
	a.say("%s", act.Key())
	e := a.faults.Action(a.faultTime(), act.Kind, act.Container)
	wk := &work{action: act}
	a.working[act.Key()] = wk
	life, pod := a.life, a.pod // a runtime knows the pod as it was when it was asked
	over := false
	end := func(err *lifecycle.Failed, id string) {
		if over || life != a.life {
			return
		}
		over = true
		a.ended(wk, err, id)
	}
	if act.Kind == lifecycle.StopContainer {
		a.stopping(wk, e, life, end)
		return
	}
	ef := &effect{do: func() {
		if e.Fail {
			end(&lifecycle.Failed{Reason: failReason(act.Kind), Message: "the model made it fail"}, a.leftByFailure(act))
			return
		}
		end(a.effect(pod, act))
	}}
	a.pending = slices.DeleteFunc(a.pending, func(p *effect) bool { return p.done })
	a.pending = append(a.pending, ef)
	took := a.between(time.Millisecond, 50*time.Millisecond) + e.Slow
	if act.Kind == lifecycle.RunPreStop || act.Kind == lifecycle.RunPostStart {
		took = a.between(time.Millisecond, 40*time.Second) + e.Slow
		if a.chance(2) {
			took = a.between(time.Millisecond, time.Second)
		}
	}
	a.after(took, ef.strike)
	if act.Kind == lifecycle.StartContainer && a.chance(2) {
		a.after(a.between(0, took), func() {
			if ef.done || life != a.life {
				return
			}
			if _, err := a.makeContainer(pod, act); err == nil {
				a.wake()
			}
			if a.lurking {
				a.lurking = false
				a.after(a.between(0, 10*time.Millisecond), a.die)
			}
		})
	}
	wk.cancel = func() {
		if e.Late || a.chance(3) {
			return // it takes effect all the same, and ends then
		}
		a.after(a.between(0, 20*time.Millisecond), func() {
			if !ef.done {
				ef.done = true
				if act.Kind == lifecycle.StartContainer && life == a.life {
					a.unmakeContainer(act)
				}
				end(&lifecycle.Failed{Reason: "Canceled", Message: "canceled"}, "")
			}
		})
	}
}

// leftByFailure is the container that a failed action leaves as made and not run;
// empty: none.
func (a *agent) leftByFailure(act lifecycle.Action) (id string) {
	if act.Kind != lifecycle.StartContainer {
		return ""
	}
	if c := a.made(act); c != nil && a.chance(2) {
		return c.ID
	}
	a.unmakeContainer(act)
	return ""
}

func failReason(k lifecycle.ActionKind) string {
	switch k {
	case lifecycle.PullImage:
		return lifecycle.ReasonErrImagePull
	case lifecycle.PrepareVolumes:
		return lifecycle.ReasonFailedMount
	case lifecycle.CreateSandbox:
		return lifecycle.ReasonFailedCreatePodSandBox
	case lifecycle.StartContainer:
		return lifecycle.ReasonCreateContainerError
	default:
		return "Failed" + string(k)
	}
}

func (a *agent) ended(wk *work, err *lifecycle.Failed, id string) {
	delete(a.working, wk.action.Key())
	ev := lifecycle.ActionEnded{Action: wk.action, At: a.now, Err: err, ContainerID: id, ImageRef: wk.action.Image,
		Canceled: wk.canceled && err != nil}
	a.history = a.history.Apply(ev)
	if a.chance(2) {
		a.save()
	}
	a.woken = true
}

// reconcileProbes starts the probes that are wanted and new. Each ends with an
// outcome after a while and may turn later.
func (a *agent) reconcileProbes(want []lifecycle.Probe) {
	now := map[lifecycle.ProbeKey]bool{}
	for _, p := range want {
		now[p.Key] = true
		a.check.probing(p)
		if !a.probes[p.Key] {
			a.flip(p.Key, a.life, p.Last != lifecycle.Success)
		}
	}
	a.probes = now
}

func (a *agent) flip(key lifecycle.ProbeKey, life int, good bool) {
	a.after(a.between(100*time.Millisecond, time.Minute), func() {
		// Results of probes no longer wanted may be on their way still.
		if life != a.life || !a.probes[key] && !a.chance(4) {
			return
		}
		out := lifecycle.Success
		if !good {
			out = lifecycle.Failure
		}
		if key.Kind != lifecycle.ReadinessProbe && a.chance(4) {
			out = lifecycle.Failure
		}
		a.say("%s probe of %s: %s", key.Kind, key.ContainerID, out)
		a.history = a.history.Apply(lifecycle.Probed{Key: key, Outcome: out, At: a.now})
		a.woken = true
		if key.Kind == lifecycle.ReadinessProbe || out == lifecycle.Success && key.Kind == lifecycle.LivenessProbe && a.chance(2) {
			a.flip(key, life, !good)
		}
	})
}

// dieSoon lets the agent die now, or in the middle of the next start that makes a
// container before it runs.
func (a *agent) dieSoon() {
	if a.chance(2) {
		a.lurking = true
		return
	}
	a.die()
}

// die kills the agent and starts it again: what was under way is forgotten, and
// takes effect or not; the history is what was on disk.
func (a *agent) die() {
	a.say("the agent dies")
	a.life++
	a.working = map[lifecycle.Key]*work{}
	a.probes = nil
	for _, p := range a.pending {
		switch a.rng.IntN(3) {
		case 0:
			p.strike() // it took effect at the last moment
		case 1:
			p.done = true
		case 2: // the runtime goes on with it
		}
	}
	if a.chance(2) {
		a.save() // the last write made it
	}
	a.loseMade()
	a.history = a.readBack(a.durable)
	a.decision = lifecycle.Decision{}
	a.check.forget()
	a.dead = true
	downtime := a.between(time.Millisecond, 5*time.Second)
	if a.chance(4) {
		downtime = a.between(time.Minute, 20*time.Minute)
	}
	life := a.life
	a.after(downtime, func() {
		if life == a.life {
			a.say("the agent starts")
			a.dead, a.woken = false, true
		}
	})
}

// loseMade removes some of the containers that were made and do not run: a
// runtime forgets what was half made when it dies with the agent.
func (a *agent) loseMade() {
	a.containers = slices.DeleteFunc(a.containers, func(c *container) bool {
		lost := c.State == lifecycle.ContainerCreated && a.chance(2)
		if lost {
			a.say("%s was made, and is lost", c.ID)
		}
		return lost
	})
}

// readBack is a history as the next agent reads it from the disk.
func (a *agent) readBack(h lifecycle.History) lifecycle.History {
	var back lifecycle.History
	b, err := json.Marshal(h)
	if err == nil {
		err = json.Unmarshal(b, &back)
	}
	if err != nil {
		a.check.fail("history does not read back: %v", err)
	}
	return back
}

// jump sets the wall clock.
func (a *agent) jump(by time.Duration) {
	a.say("the clock is set by %s", by)
	a.now = a.now.Add(by)
	a.jumped += by
	for i := range a.queue {
		a.queue[i].at = a.queue[i].at.Add(by)
	}
	if !a.dead {
		a.history = a.history.Apply(lifecycle.ClockStepped{By: by})
		a.woken = true
	}
}

func (a *agent) delete(grace int64) {
	a.say("delete, grace %ds", grace)
	p := a.pod.DeepCopy()
	t := metav1.NewTime(a.now.Add(time.Duration(grace) * time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &t, &grace
	a.pod = p
	a.woken = true
}

// changeImage changes the spec of one container, as somebody may at any time.
func (a *agent) changeImage() {
	a.pod = a.pod.DeepCopy()
	a.pod.Generation++
	list := allContainers(a.pod)
	c := list[a.rng.IntN(len(list))]
	c.Image = "changed"
	a.say("the image of %s changes", c.Name)
	a.woken = true
}

func allContainers(pod *corev1.Pod) []*corev1.Container {
	var list []*corev1.Container
	for i := range pod.Spec.InitContainers {
		list = append(list, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		list = append(list, &pod.Spec.Containers[i])
	}
	return list
}
