package integration

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/home"
	"github.com/berth-run/berth/internal/shim"
)

// story is a pod that does a bit of everything: an init container, a sidecar, a
// hook, a container that goes on and one that ends with a code of its own.
const story = `
apiVersion: v1
kind: Pod
metadata: {name: story}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  volumes: [{name: v, emptyDir: {}}]
  initContainers:
  - name: first
    image: demo
    args: [write, /v/first, once, --append]
    volumeMounts: [{name: v, mountPath: /v}]
  - name: side
    image: demo
    restartPolicy: Always
    args: [sleep, inf]
    volumeMounts: [{name: v, mountPath: /v}]
  containers:
  - name: app
    image: demo
    args: [serve, --log]
    volumeMounts: [{name: v, mountPath: /v}]
    lifecycle:
      preStop: {exec: {command: [/berth-demo, "true"]}}
  - name: ends
    image: demo
    args: [exit, "7"]
`

// applyTo asks for the pod as often as it takes: the agent may kill itself.
func (n *node) applyTo(t *testing.T, o agent.Objects) (agent.Ref, error) {
	t.Helper()
	refs, err := n.driver.apply(o)
	if err != nil {
		return agent.Ref{}, err
	}
	return refs[0], nil
}

// settled says that the pod of the story is as far as it gets by itself.
func settled(s *corev1.PodStatus) bool {
	app, ends, side := container(s, "app"), container(s, "ends"), container(s, "side")
	return app != nil && app.State.Running != nil && ends != nil && ends.State.Terminated != nil && side != nil && side.State.Running != nil
}

// The agent is killed at each begin and each end of an action, one after the
// other, while a pod starts and while it ends. Nothing may run twice, be lost or
// stay.
func TestAgentKilledAtEachStep(t *testing.T) {
	const most = 100 // log entries in the life of the pod
	for at := int64(1); at < most; at++ {
		whole := false
		t.Run(fmt.Sprint("entry ", at), func(t *testing.T) { whole = killedAt(t, at) })
		if t.Failed() {
			return
		}
		if whole {
			if at < 20 {
				t.Errorf("the pod's life had only %d entries", at)
			}
			return
		}
	}
	t.Errorf("the pod's life has more than %d log entries", most)
}

// killedAt runs the story with an agent that kills itself before its at-th log
// entry. It answers whether the story was over before.
func killedAt(t *testing.T, at int64) (whole bool) {
	n := newBareNode(t)
	objects := decode(t, story)
	first := n.startProcess(t, at)
	ref, err := n.applyTo(t, objects)
	p := &pod{node: n, Ref: ref, spec: objects.Pods[0]}
	if err != nil || !p.toldBy(first, settled) {
		<-first.ended
		before := n.containers(t)
		n.startProcess(t, 0)
		again, err := n.applyTo(t, objects)
		if err != nil {
			t.Fatal(err)
		}
		// What was asked for and acknowledged is not forgotten.
		if ref.UID != "" && again.UID != ref.UID {
			t.Errorf("the same manifest is another pod after the kill, and %v ran", before)
		}
		p.Ref = again
		p.wentOn(t, before)
	}
	if _, out := p.exec(t, "app", "cat", "/v/first"); out != "once\n" {
		t.Errorf("the init container ran otherwise than once: %q", out)
	}
	removed := n.driver.remove(p.UID, nil) == nil
	if removed && n.driver == driver(first) && !p.goneBy(first) || !removed {
		// Killed while the pod ended: the next agent ends it, if it was told so.
		<-first.ended
		n.startProcess(t, 0)
		if !removed {
			if _, err := n.applyTo(t, objects); err != nil {
				t.Fatal(err)
			}
			p.remove(t)
		}
		// The pod may be gone before anybody listens to the new agent.
		eventually(t, func() error {
			if n.driver.remove(p.UID, nil) == nil {
				return errors.New("the agent still knows the pod")
			}
			return nil
		})
		p.leftNothing(t)
	} else {
		whole = n.driver == driver(first)
		p.gone(t)
	}
	if c := n.containers(t); len(c) > 0 {
		t.Errorf("containers are left: %v", c)
	}
	return whole
}

// wentOn checks that a second agent took over what ran, and started what had not
// run.
func (p *pod) wentOn(t *testing.T, before map[string]bool) {
	t.Helper()
	s := p.until(t, "settled", settled)
	for _, c := range []string{"first", "app", "ends", "side"} {
		if r := container(s, c).RestartCount; r != 0 {
			t.Errorf("container %s was restarted: %s", c, p.story())
		}
	}
	if end := container(s, "ends").State.Terminated; end.ExitCode != 7 || end.Reason != "Error" {
		t.Errorf("the exit code was lost: %+v", end)
	}
	after := p.node.containers(t)
	for id, running := range before {
		if running && !after[id] && idOf(container(s, "ends").ContainerID) != id && idOf(container(s, "first").ContainerID) != id {
			t.Errorf("container %s ran and does no more: %v", id, after)
		}
	}
}

// toldBy waits until the pod has a status that satisfies ok, or the agent's
// process has ended, which is false.
func (p *pod) toldBy(d *ownProcess, ok func(*corev1.PodStatus) bool) bool {
	for {
		_, next := p.node.seen.of(p.UID)
		if ok(p.status()) {
			return true
		}
		select {
		case <-next:
		case <-d.ended:
			return ok(p.status())
		}
	}
}

// goneBy waits until the pod is gone, or the agent's process has ended, which is
// false.
func (p *pod) goneBy(d *ownProcess) bool {
	for {
		all, next := p.node.seen.of(p.UID)
		if slices.ContainsFunc(all, func(u agent.Update) bool { return u.Kind == agent.GoneUpdate }) {
			return true
		}
		select {
		case <-next:
		case <-d.ended:
			return false
		}
	}
}

// containers lists what the shim holds that was started, by id, and whether it
// runs.
func (n *node) containers(t *testing.T) map[string]bool {
	t.Helper()
	client, err := shim.Dial(t.Context(), filepath.Join(n.cfg.Run, "shim"), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil // the agent was killed before there was a shim
	}
	defer client.Close()
	list, err := client.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]bool)
	for _, c := range list {
		if !c.StartedAt.IsZero() {
			all[c.ID] = c.State == shim.Running
		}
	}
	return all
}

// The agent is killed again and again at random moments while containers write,
// end and go on. Ids, counts and exit codes stay, and no line of a log is lost.
func TestAgentKilledAtRandomMoments(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n := newBareNode(t)
	objects := decode(t, `
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  containers:
  - {name: writes, image: `+demoImage+`, args: [print-lines, "20000", --rate, "4000"]}
  - {name: early, image: `+demoImage+`, args: [exit, "3", --after, 300ms]}
  - {name: late, image: `+demoImage+`, args: [exit, "4", --after, 4s]}
  - {name: stays, image: `+demoImage+`, args: [serve]}
`)
	d := n.startProcess(t, 0)
	ref, err := n.applyTo(t, objects)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{node: n, Ref: ref, spec: objects.Pods[0]}
	ids := make(map[string]string)
	for _, c := range []string{"writes", "early", "late", "stays"} {
		s := p.until(t, "started "+c, func(s *corev1.PodStatus) bool { return container(s, c) != nil && container(s, c).ContainerID != "" })
		ids[c] = container(s, c).ContainerID
	}
	done := func(s *corev1.PodStatus) bool {
		for _, c := range []string{"writes", "early", "late"} {
			if container(s, c) == nil || container(s, c).State.Terminated == nil {
				return false
			}
		}
		return true
	}
	kills := 0
	for ; kills < 12 || !done(p.status()) && kills < 200; kills++ {
		d.kill()
		d = n.startProcess(t, 0)
		moment := time.NewTimer(time.Duration(random.IntN(500)) * time.Millisecond)
		if _, err := n.applyTo(t, objects); err != nil {
			t.Fatal(err)
		}
		<-moment.C
	}
	t.Logf("%d kills", kills)
	s := p.until(t, "done", done)
	for c, id := range ids {
		cs := container(s, c)
		if cs.ContainerID != id || cs.RestartCount != 0 {
			t.Errorf("container %s is another after the kills: %+v", c, cs)
		}
	}
	for c, code := range map[string]int32{"writes": 0, "early": 3, "late": 4} {
		if end := container(s, c).State.Terminated; end.ExitCode != code {
			t.Errorf("container %s ended with %+v, want %d", c, end, code)
		}
	}
	inOrder(t, p.lines(t, "writes", 0), 20000)
	for _, s := range p.statuses() {
		if c := container(s, "early"); c != nil && c.State.Terminated != nil && c.State.Terminated.ExitCode != 3 {
			t.Errorf("in between, early was reported as %+v", c.State.Terminated)
		}
	}
	p.stop(t)
}

// inOrder checks that numbered lines are all there, each once.
func inOrder(t *testing.T, lines []line, n int) {
	t.Helper()
	if len(lines) != n {
		t.Errorf("%d lines, want %d", len(lines), n)
	}
	last := 0
	for i, l := range lines {
		number := firstNumber(l.text)
		if i > 0 && number != last+1 {
			t.Fatalf("line %d says %d, the one before %d", i, number, last)
		}
		last = number
	}
}

func firstNumber(text string) int {
	n := -1
	_, _ = fmt.Sscan(strings.TrimLeft(text, "line #:"), &n)
	return n
}

// Two agents would fight over the pods.
func TestSecondAgentOnOneRootIsRefused(t *testing.T) {
	n := newNode(t)
	cfg := n.cfg
	if _, err := agent.New(t.Context(), cfg); !errors.Is(err, home.ErrInUse) {
		t.Errorf("got %v", err)
	}
}

// brief is a pod whose containers all start at once and must run exactly once.
const brief = `
apiVersion: v1
kind: Pod
metadata: {name: brief}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  containers:
  - {name: a, image: ` + demoImage + `, args: [exit, "3", --after, 1s]}
  - {name: b, image: ` + demoImage + `, args: [exit, "3", --after, 1s]}
  - {name: c, image: ` + demoImage + `, args: [exit, "3", --after, 1s]}
`

// ranOnce waits until all containers of the brief pod have ended, and checks that
// each ran and ended by itself, at its first attempt.
func (p *pod) ranOnce(t *testing.T) {
	t.Helper()
	names := []string{"a", "b", "c"}
	s := p.until(t, "over", func(s *corev1.PodStatus) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			c := container(s, name)
			return c == nil || c.State.Terminated == nil
		})
	})
	for _, name := range names {
		if c := container(s, name); c.State.Terminated.ExitCode != 3 || c.RestartCount != 0 {
			t.Errorf("container %s did not end by itself after its first start: %+v", name, c)
		}
	}
}

// The agent is killed while the containers of a Never pod are made and started:
// each of them runs, once.
func TestAgentKilledWhileANeverPodStarts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n := newBareNode(t)
	objects := decode(t, brief)
	for range 8 {
		d := n.startProcess(t, 0)
		if _, err := n.applyTo(t, objects); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond) // the random moment
		d.kill()
		d = n.startProcess(t, 0)
		ref, err := n.applyTo(t, objects)
		if err != nil {
			t.Fatal(err)
		}
		p := &pod{node: n, Ref: ref, spec: objects.Pods[0]}
		p.ranOnce(t)
		p.remove(t)
		p.gone(t)
		d.kill()
	}
}
