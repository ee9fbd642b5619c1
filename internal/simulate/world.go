package simulate

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/lifecycle"
)

// epoch is when every run begins.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world is one pod's world: the model runtime and the things to come.
type world struct {
	rng    *rand.Rand
	faults *fault.Injector
	now    time.Time // the wall clock that everybody reads
	jumped time.Duration
	queue  queue
	seq    int

	sandboxes  []*sandbox
	containers []*container
	leftovers  bool
	volumes    bool
	lost       bool // a sandbox was lost at some time
	nextID     int

	// woken says that the agent has a reason to look.
	woken bool

	story   []string
	tell    bool
	check   *checker
	scripts map[string]*script
}

type sandbox struct{ lifecycle.Sandbox }

type container struct {
	lifecycle.Container
	signalled bool
	exitSeq   int // the exit planned; others are void
	ran       bool
}

// script is how the containers of one name behave.
type script struct {
	// runs are how long each attempt runs and its exit code; the last repeats.
	runs []run
	// termDelay is how long after the stop signal it exits; negative: never.
	termDelay time.Duration
	termCode  int32
}

type run struct {
	For  time.Duration // 0: it runs until stopped
	Code int32
}

type event struct {
	at  time.Time
	seq int
	do  func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// after lets do happen d from now.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{at: w.now.Add(d), seq: w.seq, do: do})
}

func (w *world) say(format string, args ...any) {
	if w.tell {
		w.story = append(w.story, fmt.Sprintf("%10s  %s", w.elapsed().Round(time.Millisecond), fmt.Sprintf(format, args...)))
	}
}

// elapsed is how much time has really passed.
func (w *world) elapsed() time.Duration { return w.now.Sub(epoch) - w.jumped }

// faultTime is the time that faults go by: setting the wall clock does not bring
// them forward or back.
func (w *world) faultTime() time.Time { return epoch.Add(w.elapsed()) }

// chance is true once in n.
func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

// between is a duration from least to most.
func (w *world) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(w.rng.Int64N(int64(most-least)))
}

func (w *world) id(prefix string) string {
	w.nextID++
	return fmt.Sprintf("%s-%d", prefix, w.nextID)
}

// wake is an event of the runtime: the agent looks again, unless it is lost.
func (w *world) wake() {
	if _, lost := w.faults.Take(w.faultTime(), fault.LoseEvent); lost {
		w.say("an event is lost")
		return
	}
	w.woken = true
}

// observe is what the runtime says now, in a random order.
func (w *world) observe() lifecycle.Observed {
	o := lifecycle.Observed{At: w.now, Leftovers: w.leftovers}
	for _, s := range w.sandboxes {
		o.Sandboxes = append(o.Sandboxes, s.Sandbox)
	}
	for _, c := range w.containers {
		o.Containers = append(o.Containers, c.Container)
	}
	w.rng.Shuffle(len(o.Containers), func(i, j int) { o.Containers[i], o.Containers[j] = o.Containers[j], o.Containers[i] })
	w.rng.Shuffle(len(o.Sandboxes), func(i, j int) { o.Sandboxes[i], o.Sandboxes[j] = o.Sandboxes[j], o.Sandboxes[i] })
	return o
}

func (w *world) findSandbox(id string) *sandbox {
	for _, s := range w.sandboxes {
		if s.ID == id {
			return s
		}
	}
	return nil
}

func (w *world) findContainer(id string) *container {
	for _, c := range w.containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func (w *world) live() []*container {
	var live []*container
	for _, c := range w.containers {
		if c.State == lifecycle.ContainerRunning {
			live = append(live, c)
		}
	}
	return live
}

// exit ends a container.
func (w *world) exit(c *container, code int32) {
	if c.State != lifecycle.ContainerRunning {
		return
	}
	c.State = lifecycle.ContainerExited
	c.ExitCode = code
	c.FinishedAt = w.now
	if code > 128 {
		c.Signal = code - 128
	}
	w.say("%s (%s) exits with %d", c.Name, c.ID, code)
	w.wake()
}

// planExit lets c end after d, unless another plan comes.
func (w *world) planExit(c *container, d time.Duration, code int32) {
	c.exitSeq++
	seq := c.exitSeq
	w.after(d, func() {
		if c.exitSeq == seq {
			w.exit(c, code)
		}
	})
}

// signal sends the stop signal once.
func (w *world) signal(c *container) {
	if c.signalled || c.State != lifecycle.ContainerRunning {
		return
	}
	c.signalled = true
	w.check.signalled(c)
	if s := w.scripts[c.Name]; s.termDelay >= 0 {
		w.planExit(c, s.termDelay, s.termCode)
	}
}

// loseSandbox ends the sandbox and all in it, as a reboot would.
func (w *world) loseSandbox() {
	w.say("the sandboxes and all in them are lost")
	w.sandboxes, w.containers, w.volumes, w.lost = nil, nil, false, true
	w.wake()
}

func (w *world) text() string { return strings.Join(w.story, "\n") }
