package cli

import (
	"encoding/json"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/agent"
)

const unready = `---
apiVersion: v1
kind: Pod
metadata: {name: unready}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: berth.local/demo:latest
    args: [serve]
    readinessProbe: {httpGet: {path: /nowhere, port: 8080}, periodSeconds: 1}
`

// described is what berth describe -o json says of a pod.
func (n *node) described(name string) (d agent.Description) {
	n.t.Helper()
	out := n.must("describe", name, "-o", "json")
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		n.t.Fatalf("%v in %s", err, out)
	}
	return d
}

func TestAPodThatIsNotReadyIsExplained(t *testing.T) {
	n := newNode(t)
	lost := strings.ReplaceAll(pod("lost", "Always", 1, "serve"), "berth.local/demo:latest", "127.0.0.1:1/nothing:1")
	n.must("run", "--detach", n.file(unready+lost+pod("job", "Never", 1, "exit", "3")))
	n.eventually("HTTP probe failed with statuscode: 404", "ps", "unready")
	n.eventually("failed", "ps", "job")
	n.eventually("connection refused", "ps", "lost", "-o", "wide")
	out := n.must("ps")
	for _, want := range []string{
		`default +unready +not ready +0/1 .* Readiness probe failed: HTTP probe failed with statuscode: 404\n`,
		`default +lost +(ErrImagePull|ImagePullBackOff|RegistryUnavailable) +0/1 .*127\.0\.0\.1:1/nothing:1.*\n`,
		`default +job +failed +0/1 .* exit code 3\n`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("berth ps has no line like %q:\n%s", want, out)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		d := n.described("unready")
		last := d.Events[len(d.Events)-1]
		if len(d.Probes) == 1 && len(d.Probes[0].Checks) > 1 && last.Reason == "Unhealthy" && last.Count > 2 && last.Last.After(last.First) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("probes %+v, events %+v", d.Probes, d.Events)
		}
	}
	out = n.must("why", "unready")
	for _, want := range []string{
		`State: +not ready`, `readiness: GET http://:8080/nowhere, every 1s`, `failed \d+s ago \(\d .*in a row\): .*statuscode: 404`,
		`\(x\d+ over \d+s\) +Warning +Unhealthy +main +Readiness probe failed`, `Normal +Started +main`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("berth why does not say %q:\n%s", want, out)
		}
	}
	if out := n.must("describe", "job"); !strings.Contains(out, "exit code 3") || !strings.Contains(out, "Started") {
		t.Errorf("of a pod that has ended, berth describe says:\n%s", out)
	}
	// The agent is killed: the next one knows what happened.
	before := n.described("job").Events
	time.Sleep(2 * time.Second) // as long as an agent may keep it to itself
	n.killAgent()
	after := n.described("job").Events
	if len(before) == 0 || len(after) < len(before) {
		t.Errorf("events before the agent was killed: %+v, after that: %+v", before, after)
	}
	if out, code := n.berth("describe", "none"); code != 1 || !strings.Contains(out, "there is no pod none") {
		t.Errorf("describe of what is not there ends with %d: %s", code, out)
	}
	if _, code := n.berth("describe", "job", "-o", "xml"); code != 2 {
		t.Errorf("describe -o xml ends with %d", code)
	}
	n.must("rm", "--force", "--grace", "0s", "--all")
}

// A second run of what runs begins with how it is, and tells no old news.
func TestASecondRunTellsHowThePodsAre(t *testing.T) {
	n := newNode(t)
	file := n.file(pod("again", "Always", 1, "crash-after", "300ms"))
	n.must("run", "--detach", file)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if s := n.status("again"); len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].RestartCount > 0 && s.ContainerStatuses[0].State.Waiting != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is not restarted")
		}
	}
	second := n.start("run", file)
	second.await(`^again/main \| `)
	n.must("rm", "--force", "--grace", "0s", "again")
	second.wait()
	lines := second.lines()
	if len(lines) < 3 || !regexp.MustCompile(`^again: .* already; started .* ago, \d restart`).MatchString(lines[0]) || !strings.HasPrefix(lines[1], "again/main: CrashLoopBackOff: exit code 1") {
		t.Errorf("it begins with:\n%s", second.text())
	}
	for _, l := range lines[1:] {
		if l == "again/main: running" {
			t.Errorf("the first start is told as if it was now:\n%s", second.text())
		}
	}
}

// A server that ends well when it is told to looks as if it had done its work.
func TestWhatAContainerIsKilledForIsTold(t *testing.T) {
	n := newNode(t)
	dead := strings.NewReplacer("unready", "dead", "readinessProbe", "livenessProbe", "periodSeconds: 1", "periodSeconds: 1, failureThreshold: 1").Replace(unready)
	r := n.start("run", n.file(dead))
	r.await(`^dead/main: killing: liveness probe failed: .+`)
	r.await(`^dead/main: killed: liveness probe failed$`)
	r.await(`^dead/main: CrashLoopBackOff: killed: liveness probe failed \(back-off`)
	n.eventually("killed: liveness probe failed: ", "ps", "dead")
	n.eventually("killed: liveness probe failed: ", "describe", "dead") // of its last state, whatever comes next
	r.signal(syscall.SIGINT)
	r.wait()
}
