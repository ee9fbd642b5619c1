package simulate

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/lifecycle"
)

// Config says what to simulate.
type Config struct {
	Seed uint64
	// Faults are what goes wrong; nil: they are drawn from the seed too.
	Faults []fault.Fault
	// Length is how long the pod is wanted before it is deleted; default 30 min.
	Length time.Duration
	// Story asks for what happened, line by line.
	Story bool
	// Decided is called with each decision; nil: nobody.
	Decided func(pod *corev1.Pod, d lifecycle.Decision)
}

// Result is what came of a run.
type Result struct {
	Seed       uint64
	Faults     []fault.Fault
	Violations []string
	// Decisions and Actions count; Hash is equal for equal runs.
	Decisions, Actions int
	Hash               uint64
	Story              string
}

// settle is how long a deleted pod may take to be gone: hooks, grace periods,
// failures and slow actions included.
const settle = 30 * time.Minute

// Run simulates one pod from its beginning to its end.
func Run(cfg Config) Result {
	if cfg.Length == 0 {
		cfg.Length = 30 * time.Minute
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0xbe47))
	pod, scripts := randomPod(rng, fmt.Sprintf("pod-%d", cfg.Seed))
	drawn := randomFaults(rng, pod, cfg.Length)
	faults := cfg.Faults
	if faults == nil {
		faults = drawn
	}
	w := &world{rng: rng, now: epoch, faults: fault.NewInjector(epoch, faults), tell: cfg.Story, scripts: scripts}
	a := &agent{world: w, pod: pod, working: map[lifecycle.Key]*work{}}
	a.check = newChecker(a)
	a.tellDecision = cfg.Decided
	a.woken = true
	for _, f := range faults {
		a.plan(f)
	}
	a.after(cfg.Length, func() { a.delete([]int64{30, 5, 1, 0}[rng.IntN(4)]) })
	if rng.IntN(6) == 0 {
		a.after(time.Duration(rng.Int64N(int64(cfg.Length))), func() {
			a.say("evict")
			g := time.Duration(rng.IntN(10)) * time.Second
			a.stop = &lifecycle.Stop{Reason: "Evicted", Message: "the node is low on memory", Grace: &g}
			a.woken = true
		})
	}
	if rng.IntN(4) == 0 {
		a.after(time.Duration(rng.Int64N(int64(cfg.Length))), func() { a.changeImage() })
	}
	for range rng.IntN(3) {
		a.after(time.Duration(rng.Int64N(int64(cfg.Length))), func() {
			if !a.dead {
				a.history = a.history.Apply(lifecycle.SourcesChanged{})
				a.woken = true
			}
		})
	}
	a.relist()
	limit := cfg.Length + settle
	for len(a.queue) > 0 && len(a.check.violations) < 5 {
		if a.woken && !a.dead {
			a.look()
			if a.decision.Finished {
				break
			}
			continue
		}
		e := heap.Pop(&a.queue).(event)
		a.now = e.at
		if a.elapsed() > limit {
			break
		}
		e.do()
	}
	if !a.decision.Finished && len(a.check.violations) == 0 {
		a.check.fail("the pod was deleted and is not gone: work %v, under way %v", a.decision.Work, a.underWay())
	}
	return Result{Seed: cfg.Seed, Faults: faults, Violations: a.check.violations, Decisions: a.decisions,
		Actions: a.actions, Hash: a.hash, Story: a.text()}
}

// plan lets those faults happen that are events and not properties of actions.
func (a *agent) plan(f fault.Fault) {
	var do func()
	switch f.Kind {
	case fault.KillAgent:
		do = a.dieSoon
	case fault.SandboxLost:
		do = a.loseSandbox
	case fault.Clock:
		do = func() { a.jump(f.For) }
	case fault.Exit:
		do = func() {
			for _, c := range slices.Clone(a.containers) {
				if c.Name == f.Container {
					a.exit(c, f.Code)
				}
			}
		}
	default:
		return
	}
	a.after(f.After, do)
}

// relist is the net under lost events.
func (a *agent) relist() {
	a.after(time.Minute, func() {
		a.woken = true
		a.relist()
	})
}

// Shrink drops faults one at a time as long as the run still fails, and returns
// the failing run with the fewest.
func Shrink(r Result, cfg Config) Result {
	cfg.Seed = r.Seed
	return shrink(r, func(faults []fault.Fault) Result {
		cfg.Faults = faults
		return Run(cfg)
	})
}

func shrink(r Result, run func([]fault.Fault) Result) Result {
	r = run(append([]fault.Fault{}, r.Faults...)) // as told by cfg
	for again := true; again; {
		again = false
		for i := range r.Faults {
			if next := run(slices.Delete(append([]fault.Fault{}, r.Faults...), i, i+1)); len(next.Violations) > 0 {
				r, again = next, true
				break
			}
		}
	}
	return r
}
