package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The shim is killed again and again. Containers live on, are adopted, write on,
// and end with their code or with an honest "not known".
func TestShimKilledAtRandomMoments(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n := newNode(t)
	p := n.run(t, `
apiVersion: v1
kind: Pod
metadata: {name: orphaned}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  containers:
  - {name: writes, image: `+demoImage+`, args: [print-lines, "8000", --rate, "2000", --hold]}
  - {name: early, image: `+demoImage+`, args: [exit, "3", --after, 300ms]}
  - {name: late, image: `+demoImage+`, args: [exit, "4", --after, 3s]}
  - {name: stays, image: `+demoImage+`, args: [serve]}
`)
	ids := map[string]string{"writes": p.id(t, "writes"), "stays": p.id(t, "stays")}
	pid := containerPID(t, p, "stays")
	for range 12 {
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) // the random moment
		if err := syscall.Kill(n.shimPID(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// The agent starts another one by itself.
		eventually(t, func() error {
			c := n.shim(t)
			defer c.Close()
			_, err := c.List(t.Context())
			return err
		})
	}
	for c, code := range map[string]int32{"early": 3, "late": 4} {
		s := p.until(t, c+" over", func(s *corev1.PodStatus) bool { return container(s, c).State.Terminated != nil })
		end := container(s, c).State.Terminated
		if end.ExitCode != code && end.Reason != "ContainerStatusUnknown" {
			t.Errorf("container %s is said to have ended with %+v", c, end)
		}
	}
	p.says(t, "writes", "line 8000")
	s := p.status()
	for c, id := range ids {
		if cs := container(s, c); idOf(cs.ContainerID) != id || cs.RestartCount != 0 || cs.State.Running == nil {
			t.Errorf("container %s does not live on: %s", c, p.story())
		}
	}
	if now := containerPID(t, p, "stays"); now != pid {
		t.Errorf("process %d became %d", pid, now)
	}
	// What a shim had read and not written when it was killed is lost; nothing is
	// written twice or out of order.
	last := 0
	for _, l := range p.lines(t, "writes", 0) {
		number := firstNumber(l.text)
		if number < 0 {
			continue // cut by a kill
		}
		if number <= last {
			t.Fatalf("line %d after line %d", number, last)
		}
		last = number
	}
	p.answers(t, "/healthz", "ok")
	p.prints(t, "stays", "uid=0", "id")
	p.stop(t)
}

// containerPID is the first process of a container.
func containerPID(t *testing.T, p *pod, c string) int {
	t.Helper()
	client := p.node.shim(t)
	defer client.Close()
	list, err := client.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.ID == p.id(t, c) {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", s.PID)); err != nil {
				t.Fatal(err)
			}
			return s.PID
		}
	}
	t.Fatalf("the shim does not know %s", c)
	return 0
}

// Both are killed at once.
func TestShimAndAgentKilledTogether(t *testing.T) {
	n := newBareNode(t)
	d := n.startProcess(t, 0)
	objects := decode(t, onePod("both", "args: [serve]\nreadinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}"))
	ref, err := n.applyTo(t, objects)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{node: n, Ref: ref, spec: objects.Pods[0]}
	id := container(p.ready(t), "app").ContainerID
	told := len(p.statuses())
	if err := syscall.Kill(n.shimPID(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.kill()
	n.startProcess(t, 0)
	if _, err := n.applyTo(t, objects); err != nil {
		t.Fatal(err)
	}
	s := p.until(t, "reported again", func(s *corev1.PodStatus) bool { return p.reportedSince(s, told) && isReady(s) })
	if c := container(s, "app"); c.ContainerID != id || c.RestartCount != 0 {
		t.Errorf("it was not adopted: %s", p.story())
	}
	p.stop(t)
}

// The shim is killed while pods start and while they end. They get there all the
// same, and nothing stays.
func TestShimKilledWhilePodsStartAndEnd(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n := newNode(t)
	killSoon := func(within int) {
		time.Sleep(time.Duration(random.IntN(within)) * time.Millisecond) // the random moment
		if pid, ok := n.findShim(t); ok {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 12 {
		p := n.run(t, onePod(fmt.Sprint("shaken-", i), "args: [serve]\nreadinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}", "restartPolicy: Always"))
		killSoon(120)
		p.ready(t)
		p.answers(t, "/healthz", "ok")
		p.remove(t)
		killSoon(60)
		p.gone(t)
	}
}

// The shim is killed while the containers of a Never pod are made and started:
// nothing is wrong with them, and each of them runs, once.
func TestShimKilledWhileANeverPodStarts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n := newNode(t)
	for range 8 {
		p := n.run(t, brief)
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond) // the random moment
		if pid, ok := n.findShim(t); ok {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		p.ranOnce(t)
		p.remove(t)
		p.gone(t)
	}
}
