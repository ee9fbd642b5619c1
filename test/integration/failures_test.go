package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
)

func TestWrongCommandNamesTheFile(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for name, command := range map[string]string{
		"no-file": "/no/such/program", "not-a-file": "/etc", "no-rights": "/etc/passwd", "not-found": "nowhere-in-path",
	} {
		t.Run(name, func(t *testing.T) {
			p := n.run(t, onePod(name, "command: ["+command+"]", "restartPolicy: Never"))
			s := p.failed(t)
			end := container(s, "app").State.Terminated
			if end == nil || end.Reason != "ContainerCannotRun" || !strings.Contains(end.Message, command) || end.ExitCode != 128 {
				t.Errorf("ended with %+v", end)
			}
			p.stop(t)
		})
	}
}

func TestConfigThatIsMissingIsWaitedFor(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	const name = "missing-config"
	p := n.run(t, onePod(name, `
args: [serve]
env:
- {name: A, valueFrom: {configMapKeyRef: {name: missing-config, key: a}}}
- {name: B, valueFrom: {configMapKeyRef: {name: missing-config, key: b, optional: true}}}
- {name: C, valueFrom: {secretKeyRef: {name: missing-config, key: c}}}
envFrom:
- {configMapRef: {name: missing-altogether, optional: true}}`))
	if message := p.reason(t, "app", "CreateContainerConfigError"); !strings.Contains(message, name) {
		t.Errorf("the message does not name the ConfigMap: %q", message)
	}
	n.apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: missing-config}\ndata: {x: other}\n")
	p.until(t, "told of the missing key", func(s *corev1.PodStatus) bool {
		w := container(s, "app").State.Waiting
		return w != nil && w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, "key \"a\" not found")
	})
	n.apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: missing-config}\ndata: {a: one}\n")
	p.until(t, "told of the missing secret", func(s *corev1.PodStatus) bool {
		w := container(s, "app").State.Waiting
		return w != nil && strings.Contains(w.Message, "secret \"missing-config\" not found")
	})
	n.apply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: missing-config}\nstringData: {c: three}\n")
	p.ready(t)
	p.answers(t, "/env?name=A", "one")
	p.answers(t, "/env?name=C", "three")
	if code, _ := p.get(t, "/env?name=B"); code != http.StatusNotFound {
		t.Error("an optional key that is missing gives a variable")
	}
	p.stop(t)
}

func TestVolumeOfASecretThatIsMissingIsWaitedFor(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	p := n.run(t, onePod("missing-secret", "args: [serve]\nvolumeMounts: [{name: s, mountPath: /s}]",
		"volumes: [{name: s, secret: {secretName: missing-secret}}]"))
	if message := p.event(t, "FailedMount"); !strings.Contains(message, "missing-secret") {
		t.Errorf("the event does not name the Secret: %q", message)
	}
	p.until(t, "waiting", func(s *corev1.PodStatus) bool {
		c := container(s, "app")
		return s.Phase == corev1.PodPending && c != nil && c.State.Waiting != nil && c.State.Waiting.Reason == "ContainerCreating"
	})
	n.apply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: missing-secret}\nstringData: {k: v}\n")
	p.ready(t)
	p.prints(t, "app", "v", "cat", "/s/k")
	p.stop(t)
}

func TestHostPortThatIsTaken(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	taken, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	manifest := func(name string) string {
		return onePod(name, fmt.Sprintf("args: [serve]\nports: [{containerPort: 8080, hostPort: %d}]", port))
	}
	first := n.run(t, manifest("port-first"))
	if message := first.event(t, "FailedCreatePodSandBox"); !strings.Contains(message, fmt.Sprint(port)) {
		t.Errorf("the event does not name the port: %q", message)
	}
	taken.Close()
	first.ready(t)

	answers(t, fmt.Sprintf("http://127.0.0.1:%d/hostname", port), "port-first")
	first.stop(t)
}

// Of two pods that want a port of the host the first one has it, and the other one
// fails, whichever would have been faster.
func TestHostPortOfAnotherPod(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	free, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	manifest := func(name string) string {
		return onePod(name, fmt.Sprintf("args: [serve]\nports: [{containerPort: 8080, hostPort: %d}]", port))
	}
	rejected := func(p *pod) {
		t.Helper()
		want := fmt.Sprintf("Pod was rejected: host port %d/TCP is taken by pod default/z-first", port)
		if s := p.failed(t); s.Reason != "NodePorts" || s.Message != want {
			t.Errorf("pod %s has failed with %s: %s; want NodePorts: %s", p.Name, s.Reason, s.Message, want)
		}
	}
	pods := n.apply(t, manifest("z-first")+"---\n"+manifest("a-second"))
	rejected(pods[1])
	pods[0].ready(t)
	rejected(n.run(t, manifest("b-later")))
	answers(t, fmt.Sprintf("http://127.0.0.1:%d/hostname", port), "z-first")
	pods[0].remove(t)
	again := n.run(t, manifest("b-later")) // it may have to wait for the first one's end
	again.ready(t)
	answers(t, fmt.Sprintf("http://127.0.0.1:%d/hostname", port), "b-later")
	again.stop(t)
}

func TestHostPathOfAnotherTypeIsSaid(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := n.run(t, onePod("host-path", "args: [serve]\nvolumeMounts: [{name: h, mountPath: /h}]",
		"volumes: [{name: h, hostPath: {path: "+file+", type: Directory}}]"))
	if message := p.event(t, "FailedMount"); !strings.Contains(message, file) || !strings.Contains(message, "directory") {
		t.Errorf("the event does not say what is wrong: %q", message)
	}
	p.stop(t)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestContainerThatUsesTooMuchMemoryIsKilled(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, onePod("oom", "args: [alloc, \"200\", --step, \"8\"]\nresources: {limits: {memory: 32Mi}}", "restartPolicy: Never"))
	end := container(p.failed(t), "app").State.Terminated
	if end.Reason != "OOMKilled" || end.ExitCode != 137 {
		t.Errorf("ended with %+v", end)
	}
	p.stop(t)
}

func TestPodThatIgnoresSIGTERMIsKilledAfterItsGrace(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, strings.Replace(onePod("deaf", "args: [ignore-term]"), "Seconds: 5", "Seconds: 1", 1))
	p.says(t, "app", "ignor")
	began := time.Now()
	p.stop(t)
	if took := time.Since(began); took < time.Second {
		t.Errorf("it was killed after %s, before its grace was over", took)
	}
	if end := container(p.status(), "app").State.Terminated; end == nil || end.ExitCode != 137 {
		t.Errorf("ended with %+v", end)
	}
}

func TestDeadlineEndsThePod(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, onePod("deadline", "args: [sleep, inf]", "activeDeadlineSeconds: 1"))
	s := p.failed(t)
	if s.Reason != "DeadlineExceeded" {
		t.Errorf("the reason is %q", s.Reason)
	}
	p.stop(t)
}

func TestLivenessProbeThatFailsRestartsTheContainer(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, onePod("liveness", `
args: [serve]
livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 2}`))
	p.ready(t)
	p.post(t, "/healthz?live=false")
	s := p.restarts(t, "app", 1)
	if last := container(s, "app").LastTerminationState.Terminated; last == nil || last.ExitCode != 0 {
		t.Errorf("it was not stopped gracefully: %+v", last)
	}
	if message := p.event(t, "Unhealthy"); !strings.Contains(message, "Liveness probe failed") {
		t.Errorf("the event says %q", message)
	}
	p.event(t, "Killing")
	p.stop(t)
}

// A changed manifest is another pod: the old one ends before the new one begins.
func TestTwoPodsOfOneNameFollowEachOther(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	old := n.run(t, onePod("same-name", "args: [serve, --term-delay, 300ms]"))
	old.ready(t)
	young := n.run(t, onePod("same-name", "args: [serve]\nenv: [{name: A, value: new}]"))
	if young.UID == old.UID {
		t.Fatal("both have one uid")
	}
	old.gone(t)
	young.ready(t)
	end := container(old.status(), "app").State.Terminated
	start := container(young.status(), "app").State.Running
	if end == nil || start.StartedAt.Time.Before(end.FinishedAt.Truncate(time.Second)) {
		t.Errorf("the second began at %v, the first ended with %+v", start.StartedAt, end)
	}
	// The same manifest again is the same pod.
	again := n.run(t, onePod("same-name", "args: [serve]\nenv: [{name: A, value: new}]"))
	if again.UID != young.UID {
		t.Error("the same manifest is another pod")
	}
	young.stop(t)
}

func TestForkBombIsHeldByThePidsLimit(t *testing.T) {
	n := newNode(t, func(c *agent.Config) { c.PodPids = 40 })
	p := n.run(t, onePod("bomb", "args: [forkbomb, --max, \"8\"]", "restartPolicy: Never"))
	calm := n.run(t, onePod("calm", "args: [serve]"))
	// The kernel counts what it refused. What the programs say depends on whether
	// it was a fork or a thread, and a program that gets no thread ends.
	eventually(t, func() error {
		n, err := p.refusedPids()
		if err == nil && n == 0 {
			err = fmt.Errorf("nothing was refused: %q", p.logs(t, "app"))
		}
		return err
	})
	calm.ready(t)
	calm.answers(t, "/healthz", "ok")
	if n, err := calm.refusedPids(); err != nil || n > 0 {
		t.Errorf("the pod beside it was refused %d processes, %v", n, err)
	}
	p.stop(t)
	calm.stop(t)
}

// refusedPids is how many processes and threads the kernel refused the pod for its
// limit.
func (p *pod) refusedPids() (count int, err error) {
	groups := 0
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		err := filepath.WalkDir(root+p.node.cfg.CgroupRoot, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a container may go, and one of the hierarchies there may be
			}
			if err != nil || d.Name() != "pids.events" || !strings.Contains(strings.ReplaceAll(path, "_", "-"), string(p.UID)) {
				return err
			}
			b, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			var n int
			if _, scanErr := fmt.Sscanf(string(b), "max %d", &n); err == nil && scanErr != nil {
				err = scanErr
			}
			groups++
			count += n
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	if groups == 0 {
		return 0, fmt.Errorf("pod %s has no cgroup that counts processes", p.Name)
	}
	return count, nil
}

func TestManyContainersThatExitAtOnce(t *testing.T) {
	n := newNode(t)
	const pods, each = 10, 20
	var text strings.Builder
	for i := range pods {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: crowd-%d}\nspec:\n  restartPolicy: Never\n  containers:\n", i)
		for j := range each {
			fmt.Fprintf(&text, "  - {name: c%d, image: %s, args: [exit, \"%d\"]}\n", j, demoImage, j)
		}
	}
	crowd := n.apply(t, text.String())
	for _, p := range crowd {
		s := p.failed(t)
		for j := range each {
			end := container(s, fmt.Sprintf("c%d", j)).State.Terminated
			if end == nil || end.ExitCode != int32(j) {
				t.Errorf("%s c%d ended with %+v", p.Name, j, end)
			}
		}
	}
	for _, p := range crowd {
		p.remove(t)
	}
	for _, p := range crowd {
		p.gone(t)
	}
}
