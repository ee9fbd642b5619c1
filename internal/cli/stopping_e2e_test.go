package cli

import (
	"encoding/json"
	"net"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// silentRegistry takes connections and never answers: a pull from it goes on.
func silentRegistry(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// one is a pod of berth ps -o json.
func (n *node) one(name string) *corev1.Pod {
	n.t.Helper()
	var list corev1.PodList
	if err := json.Unmarshal([]byte(n.must("ps", name, "-o", "json")), &list); err != nil || len(list.Items) != 1 {
		n.t.Fatalf("%d pods called %s, %v", len(list.Items), name, err)
	}
	return &list.Items[0]
}

const hooked = `---
apiVersion: v1
kind: Pod
metadata: {name: hooked}
spec:
  terminationGracePeriodSeconds: 600
  containers:
  - name: main
    image: berth.local/demo:latest
    args: [serve]
    lifecycle: {preStop: {sleep: {seconds: 500}}}
`

func TestPodsThatAreBeingStoppedSaySo(t *testing.T) {
	n := newNode(t)
	pulls := strings.ReplaceAll(pod("pulls", "Always", 1, "serve"), "berth.local/demo:latest", silentRegistry(t)+"/nothing:1")
	run := n.start("run", n.file(hooked+pod("stubborn", "Always", 600, "ignore-term")+pulls))
	run.await(`^hooked: ready`)
	run.await(`^stubborn/main \| ignoring SIGTERM$`)
	n.eventually("pulls", "ps")
	stops := n.start("stop", "hooked", "stubborn")
	for _, name := range []string{"hooked", "stubborn"} {
		run.await("^" + name + ": stopping$")
		if out := n.must("ps", name); !regexp.MustCompile(`default +` + name + ` +stopping +`).MatchString(out) {
			t.Errorf("berth ps shows:\n%s", out)
		}
		if p := n.one(name); p.Status.Phase != corev1.PodRunning || p.Status.Reason != "Stopped" || p.DeletionTimestamp != nil {
			t.Errorf("pod %s is %s, %s, deleted %v", name, p.Status.Phase, p.Status.Reason, p.DeletionTimestamp)
		}
		if out, code := n.berth("rm", name); code != 1 || !strings.Contains(out, "is being stopped") {
			t.Errorf("rm of a pod that is being stopped ends with %d: %s", code, out)
		}
	}
	stops.signal(syscall.SIGINT)
	stops.await("^berth: interrupted: pods that were asked to end go on")
	if code := stops.wait(); code != 130 {
		t.Errorf("a stop that is interrupted ends with %d", code)
	}
	// It is no pod that goes on, nor one that is waited for.
	if out, code := n.berth("run", "--until", "ready", "--timeout", "1m", n.file(pod("other", "Never", 1, "true"))); code != 0 || strings.Contains(out, "hooked") {
		t.Errorf("a run of another pod ends with %d: %s", code, out)
	}
	n.must("stop", "--grace", "0s", "hooked", "stubborn")
	if out := n.must("ps", "hooked"); !strings.Contains(out, "failed: Stopped") {
		t.Errorf("after the stop, berth ps shows:\n%s", out)
	}
	n.must("stop", "pulls")
	run.await(`^pulls: (stopping|failed: Stopped)`) // nothing keeps it
	if out := n.must("ps", "pulls"); !strings.Contains(out, "failed: Stopped") {
		t.Errorf("after the stop, berth ps shows:\n%s", out)
	}
	run.wait()
}

func TestAPodThatIsBeingRemovedSaysSo(t *testing.T) {
	n := newNode(t)
	n.must("run", "--detach", "--until", "ready", n.file(hooked))
	follows := n.start("run", "-o", "json", n.file(hooked))
	follows.await(`"kind":"status"`)
	removes := n.start("rm", "--force", "hooked")
	follows.await(`"kind":"status".*"stopping":true`)
	n.eventually("stopping", "ps")
	if p := n.one("hooked"); p.DeletionTimestamp == nil {
		t.Errorf("the pod is %+v", p.ObjectMeta)
	}
	n.must("rm", "--force", "--grace", "0s", "hooked")
	if code := removes.wait(); code != 0 {
		t.Errorf("rm ends with %d: %s", code, strings.Join(removes.lines(), "\n"))
	}
	if code := follows.wait(); code != 137 {
		t.Errorf("the run that followed it ends with %d", code)
	}
}

func TestAStopGoesOnBeingShownUnderTheNextAgent(t *testing.T) {
	n := newNode(t)
	run := n.start("run", n.file(hooked))
	run.await(`^hooked: ready`)
	stop := n.start("stop", "hooked")
	run.await(`^hooked: stopping$`)
	run.signal(syscall.SIGKILL)
	run.wait()
	deadline := time.Now().Add(30 * time.Second)
	for n.one("hooked").Status.Reason != "Stopped" {
		if time.Now().After(deadline) {
			t.Fatalf("berth ps shows:\n%s", n.must("ps"))
		}
		time.Sleep(50 * time.Millisecond)
	}
	if out := n.must("ps"); !strings.Contains(out, "stopping") {
		t.Errorf("berth ps shows:\n%s", out)
	}
	n.must("stop", "hooked", "--grace", "0s")
	stop.wait()
}
