package probe

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/httpget"
	"github.com/berth-run/berth/internal/lifecycle"
)

// keptPods is how many pods without probes are still remembered, for those who
// don't call Forget.
const keptPods = 256

// keptRings is how many dropped probes of a pod are still remembered, so that
// one can see why a container was restarted.
const keptRings = 6

// Result is an outcome that changed.
type Result struct {
	PodUID  types.UID
	Key     lifecycle.ProbeKey
	Outcome lifecycle.Outcome
	Message string // output or error of the check that decided it
	At      time.Time
}

// Observation is one check of one probe, for events, metrics and the timeline.
type Observation struct {
	Pod   *corev1.Pod
	Probe lifecycle.Probe
	Check Check
}

// Config says how a Manager probes. The zero value of an optional field means
// its default.
type Config struct {
	// Exec runs exec probes; required.
	Exec Execer
	// Changed is called with each outcome that differs from the one before, one
	// call at a time and in order; required. It must not block.
	Changed func(Result)
	// Checked is called after each check, before the Changed that follows from
	// it, under the same rules; default: nobody.
	Checked func(Observation)
	// Timing says when a probe's checks come; default: SpecTiming.
	Timing func(pod *corev1.Pod, container string, kind lifecycle.ProbeKind, spec *corev1.Probe) Timing
	// Workers is how many network checks may begin at once; default 64. Checks
	// that wait for a slow target don't count.
	Workers int
	// ExecWorkers is the same for exec checks; default 8.
	ExecWorkers int
	// Spread is the longest time over which the first checks of containers are
	// spread that ran before this Manager did, each within its period;
	// default 10 s.
	Spread time.Duration
}

func (c *Config) complete() error {
	if c.Workers == 0 {
		c.Workers = 64
	}
	if c.ExecWorkers == 0 {
		c.ExecWorkers = 8
	}
	if c.Spread == 0 {
		c.Spread = 10 * time.Second
	}
	if c.Timing == nil {
		c.Timing = func(_ *corev1.Pod, _ string, _ lifecycle.ProbeKind, spec *corev1.Probe) Timing {
			return SpecTiming(spec)
		}
	}
	var errs []error
	if c.Exec == nil {
		errs = append(errs, errors.New("probe: Config.Exec is required"))
	}
	if c.Changed == nil {
		errs = append(errs, errors.New("probe: Config.Changed is required"))
	}
	if c.Workers < 1 {
		errs = append(errs, fmt.Errorf("probe: Config.Workers is %d, want at least 1", c.Workers))
	}
	if c.ExecWorkers < 1 {
		errs = append(errs, fmt.Errorf("probe: Config.ExecWorkers is %d, want at least 1", c.ExecWorkers))
	}
	if c.Spread < 0 {
		errs = append(errs, fmt.Errorf("probe: Config.Spread is %s, want no less than 0", c.Spread))
	}
	return errors.Join(errs...)
}

// Manager runs probes. It is safe for concurrent use.
type Manager struct {
	cfg      Config
	checkers checkers
	began    time.Time // containers that are older may have been probed before

	wake    chan struct{} // the loop must look again; capacity 1
	results chan struct{} // outbox has something; capacity 1
	jobs    chan job      // to idle workers

	mu      sync.Mutex // guards all below; never held across I/O or a callback
	pods    map[types.UID]*podProbes
	due     queue
	asleep  time.Time // the loop sleeps until then; zero: it doesn't
	lanes   [2]lane   // network, exec
	ending  map[lifecycle.ProbeKey]*runner
	without []types.UID // pods that came to be without probes, the oldest first
	outbox  []delivery
	stopped bool // Run is over, no check may begin
	idle    int  // workers without a job
	workers sync.WaitGroup
}

// podProbes are the probes of one pod.
type podProbes struct {
	pod  *corev1.Pod
	live map[lifecycle.ProbeKey]*runner
	past []pastRing // of dropped probes, the oldest first
	idle bool       // in Manager.without
}

type pastRing struct {
	key       lifecycle.ProbeKey
	container string
	ring
}

// delivery is a check or a result on its way; it is dropped when its probe is.
type delivery struct {
	runner  *runner
	checked *Observation
	changed *Result
}

// New returns a Manager that runs nothing until Run.
func New(cfg Config) (*Manager, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	m := &Manager{
		cfg:      cfg,
		checkers: checkers{exec: cfg.Exec, clients: httpget.NewClients()},
		began:    time.Now(),
		wake:     make(chan struct{}, 1),
		results:  make(chan struct{}, 1),
		jobs:     make(chan job),
		pods:     map[types.UID]*podProbes{},
		ending:   map[lifecycle.ProbeKey]*runner{},
	}
	m.lanes[networkLane] = lane{limit: cfg.Workers, slowAfter: networkSlow}
	m.lanes[execLane] = lane{limit: cfg.ExecWorkers, slowAfter: execSlow}
	return m, nil
}

// Set says which probes should run for a pod. New ones begin, those that vanished
// end and their checks are cut off; one whose key stays goes on, with a new
// address or timing from its next check. It never blocks. pod and what want
// points to must not change later.
func (m *Manager) Set(pod *corev1.Pod, want []lifecycle.Probe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[pod.UID]
	if p == nil {
		if len(want) == 0 {
			return
		}
		p = &podProbes{live: map[lifecycle.ProbeKey]*runner{}}
		m.pods[pod.UID] = p
	}
	sameSpec := p.pod == pod
	p.pod = pod
	now := time.Now()
	kept := 0
	for i := range want {
		w := &want[i]
		r := p.live[w.Key]
		switch {
		case w.Spec == nil:
			continue
		case r == nil:
			m.add(p, w, now)
		case sameSpec && r.want.IP == w.IP && r.want.Spec == w.Spec:
		default:
			m.update(r, pod, w, now)
		}
		kept++
	}
	if kept != len(p.live) {
		m.dropOthers(p, want)
	}
	if len(p.live) == 0 && !p.idle {
		m.remember(p)
	}
	if len(m.due) > 0 && m.due[0].due.Before(m.asleep) {
		m.poke()
	}
}

// Forget drops all that is known of a pod.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil {
		m.dropOthers(p, nil)
		delete(m.pods, uid)
	}
}

// Recent returns the last checks of a probe, the oldest first, also of one that
// was dropped a short while ago. It returns nil for a probe that is not known.
func (m *Manager) Recent(uid types.UID, key lifecycle.ProbeKey) []Check {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return nil
	}
	if r := p.live[key]; r != nil {
		return r.ring.list()
	}
	for i := len(p.past) - 1; i >= 0; i-- {
		if p.past[i].key == key {
			return p.past[i].list()
		}
	}
	return nil
}

// Record is what is remembered of one probe.
type Record struct {
	Key       lifecycle.ProbeKey
	Container string
	Live      bool    // it runs; else it was dropped a short while ago
	Checks    []Check // the oldest first
}

// Records returns what is remembered of a pod's probes: those of containers that
// are no more, the oldest first, then those that run, by container and kind.
func (m *Manager) Records(uid types.UID) []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return nil
	}
	var records []Record
	for i := range p.past {
		records = append(records, Record{Key: p.past[i].key, Container: p.past[i].container, Checks: p.past[i].list()})
	}
	for key, r := range p.live {
		records = append(records, Record{Key: key, Container: r.want.Container, Live: true, Checks: r.ring.list()})
	}
	slices.SortFunc(records[len(p.past):], func(a, b Record) int {
		if c := strings.Compare(a.Container, b.Container); c != 0 {
			return c
		}
		return strings.Compare(string(a.Key.Kind), string(b.Key.Kind))
	})
	return records
}

// remember keeps a pod that has no probes any more, and forgets the one that has
// been without for longest if they are too many. m.mu is held.
func (m *Manager) remember(p *podProbes) {
	p.idle = true
	m.without = append(m.without, p.pod.UID)
	if len(m.without) <= keptPods {
		return
	}
	oldest := m.pods[m.without[0]]
	m.without = m.without[1:]
	switch {
	case oldest == nil: // Forget was called
	case len(oldest.live) == 0:
		delete(m.pods, oldest.pod.UID)
	default:
		oldest.idle = false
	}
}

// add begins a probe. m.mu is held.
func (m *Manager) add(p *podProbes, w *lifecycle.Probe, now time.Time) {
	r := &runner{
		pod: p.pod, want: *w, place: -1,
		timing: m.cfg.Timing(p.pod, w.Container, w.Key.Kind, w.Spec).bounded(),
		tally:  NewTally(w.Key.Kind, w.Spec, w.Last),
	}
	r.aim(m)
	p.live[w.Key] = r
	if r.tally.Done {
		return
	}
	var spread time.Duration
	if w.StartedAt.Before(m.began) && now.Sub(m.began) < m.cfg.Spread {
		spread = jitter(w.Key, min(r.timing.Period, m.cfg.Spread))
	}
	r.due = first(now, w.StartedAt, r.timing.InitialDelay, spread)
	r.grid = m.aligned(r.due, r.timing.Period)
	r.rising = w.Key.Kind != lifecycle.LivenessProbe && w.Last == lifecycle.Undecided && !w.StartedAt.Before(m.began)
	if r.lane == execLane {
		r.asked = 2 // a command costs more than a connection: begin with 100 ms
	}
	if old := m.ending[w.Key]; old != nil {
		// Its last check is still alive: the first one waits for its end.
		old.successor = r
		return
	}
	m.due.put(r)
}

// aligned is the grid of a probe whose first check comes at first. Its ticks are
// up to a twentieth of the period and 50 ms earlier than first would have them, so
// that those of many probes fall together: a processor that wakes up once for
// ten checks needs a third of the time for each (BenchmarkHTTPProbes).
func (m *Manager) aligned(first time.Time, period time.Duration) Schedule {
	slot := min(period/20, 50*time.Millisecond)
	return Schedule{First: first.Add(-(first.Sub(m.began) % slot)), Period: period}
}

// update takes over what may change while a container runs. m.mu is held.
func (m *Manager) update(r *runner, pod *corev1.Pod, w *lifecycle.Probe, now time.Time) {
	r.pod = pod
	moved := r.want.IP != w.IP || !reflect.DeepEqual(r.want.Spec, w.Spec)
	r.want.IP, r.want.Spec = w.IP, w.Spec
	if moved {
		r.aim(m)
	}
	timing := m.cfg.Timing(pod, w.Container, w.Key.Kind, w.Spec).bounded()
	if timing == r.timing {
		return
	}
	r.timing = timing
	if r.place >= 0 {
		r.due = minTime(r.due, now.Add(timing.Period))
		r.grid = m.aligned(r.due, timing.Period)
		m.due.put(r)
	} else {
		r.grid = m.aligned(now.Add(timing.Period), timing.Period)
	}
}

// dropOthers ends all probes of a pod that are not wanted. m.mu is held.
func (m *Manager) dropOthers(p *podProbes, want []lifecycle.Probe) {
	for key, r := range p.live {
		if !wants(want, key) {
			delete(p.live, key)
			m.drop(r)
			if len(r.ring.checks) > 0 {
				p.past = append(p.past, pastRing{key, r.want.Container, r.ring})
			}
		}
	}
	if extra := len(p.past) - keptRings; extra > 0 {
		p.past = append([]pastRing(nil), p.past[extra:]...)
	}
}

func wants(want []lifecycle.Probe, key lifecycle.ProbeKey) bool {
	for i := range want {
		if want[i].Key == key && want[i].Spec != nil {
			return true
		}
	}
	return false
}

// drop ends a probe. m.mu is held.
func (m *Manager) drop(r *runner) {
	r.gone = true
	m.due.drop(r)
	if r.flight != nil {
		m.ending[r.want.Key] = r
		r.flight.cancel()
		return
	}
	// It may be the successor of one whose check is still alive.
	if old := m.ending[r.want.Key]; old != nil && old.successor == r {
		old.successor = nil
	}
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
