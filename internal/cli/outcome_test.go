package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
)

// parsePod reads a pod from its state in short: PHASE[:REASON] and containers as
// NAME=STATE, where STATE is run, ready, wait:REASON or end:CODE[:REASON]; the
// name of an init container begins with +, that of a sidecar with *.
func parsePod(t *testing.T, name, text string) *podState {
	t.Helper()
	fields := strings.Fields(text)
	p := &podState{
		ref: agent.Ref{Namespace: "default", Name: name, UID: "uid-1"}, name: name,
		spec: &corev1.PodSpec{}, checks: make(map[string]*agent.Event), pulls: make(map[string]agent.Progress),
	}
	if fields[0] == "unknown" {
		return p
	}
	phase, reason, _ := strings.Cut(fields[0], ":")
	p.status = &corev1.PodStatus{Phase: corev1.PodPhase(phase), Reason: reason}
	ready := phase == "Running"
	for _, f := range fields[1:] {
		cname, how, _ := strings.Cut(f, "=")
		c := corev1.ContainerStatus{Name: strings.TrimLeft(cname, "+*"), ContainerID: "berth://" + name + cname}
		parts := strings.Split(how, ":")
		switch parts[0] {
		case "ready":
			c.Ready = true
			c.State.Running = &corev1.ContainerStateRunning{}
		case "run":
			c.State.Running = &corev1.ContainerStateRunning{}
		case "wait":
			c.State.Waiting = &corev1.ContainerStateWaiting{Reason: parts[1], Message: strings.Join(parts[2:], " ")}
		case "end":
			c.State.Terminated = &corev1.ContainerStateTerminated{ContainerID: c.ContainerID}
			for _, d := range parts[1] {
				c.State.Terminated.ExitCode = c.State.Terminated.ExitCode*10 + d - '0'
			}
			if len(parts) > 2 {
				c.State.Terminated.Reason = parts[2]
			}
		default:
			t.Fatalf("state %q is unknown", how)
		}
		always := corev1.ContainerRestartPolicyAlways
		switch cname[0] {
		case '*':
			p.spec.InitContainers = append(p.spec.InitContainers, corev1.Container{Name: c.Name, RestartPolicy: &always})
			p.status.InitContainerStatuses = append(p.status.InitContainerStatuses, c)
		case '+':
			p.spec.InitContainers = append(p.spec.InitContainers, corev1.Container{Name: c.Name})
			p.status.InitContainerStatuses = append(p.status.InitContainerStatuses, c)
		default:
			p.spec.Containers = append(p.spec.Containers, corev1.Container{Name: c.Name})
			p.status.ContainerStatuses = append(p.status.ContainerStatuses, c)
			ready = ready && c.Ready
		}
	}
	cond := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if ready {
		cond.Status = corev1.ConditionTrue
	}
	p.status.Conditions = []corev1.PodCondition{cond}
	return p
}

func TestExitCode(t *testing.T) {
	for name, c := range map[string]struct {
		pods []string
		want int
	}{
		"all succeeded":                              {[]string{"Succeeded a=end:0", "Succeeded a=end:0"}, 0},
		"one pod passes on its container's code":     {[]string{"Failed a=end:7:Error"}, 7},
		"the first container that failed counts":     {[]string{"Failed a=end:0 b=end:3:Error c=end:4:Error"}, 3},
		"a failed init container counts":             {[]string{"Failed +i=end:9:Error a=wait:PodInitializing"}, 9},
		"a killed sidecar does not":                  {[]string{"Failed *s=end:137:Error a=end:5:Error"}, 5},
		"of two pods one failed":                     {[]string{"Succeeded a=end:0", "Failed a=end:7:Error"}, 1},
		"a pod rejected or past its deadline":        {[]string{"Failed:DeadlineExceeded a=wait:ContainerCreating"}, 1},
		"how it ended is not known":                  {[]string{"Failed a=end:137:ContainerStatusUnknown"}, 1},
		"a pod that was removed before it ended":     {[]string{"Running a=ready"}, 1},
		"nothing was ever heard of it":               {[]string{"unknown"}, 1},
		"killed by a signal, as a shell would say":   {[]string{"Failed a=end:143:Error"}, 143},
		"an exit code that no process can return":    {[]string{"Failed a=end:512:Error"}, 1},
		"main failed, though the sidecar ended well": {[]string{"Failed *s=end:0 a=end:2:Error"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*podState
			for _, text := range c.pods {
				pods = append(pods, parsePod(t, "p", text))
			}
			if got := exitCodeOf(pods); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestBlockersNameContainerReasonAndWarning(t *testing.T) {
	for text, want := range map[string]string{
		"Pending a=wait:ErrImagePull:no:such:image b=ready":                   "p/a: ErrImagePull: no such image",
		"Pending +i=run a=wait:PodInitializing":                               "p/i: running",
		"Running a=run":                                                       "p/a: not ready: it runs, and its readiness probe has not succeeded",
		"Failed:Evicted a=end:1:Error":                                        "p: failed: Evicted",
		"Failed a=end:137:OOMKilled":                                          "p: failed: OOMKilled",
		"Failed *s=end:9:Error a=end:3:Error b=end:0:Completed c=end:1:Error": "p: failed: a: exit code 3; c: exit code 1",
		"Succeeded a=end:0:Completed":                                         "p: succeeded",
		"unknown":                                                             "p: nothing is known of it yet",
	} {
		if got := strings.Join(blockers(parsePod(t, "p", text), false), "\n"); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
	p := parsePod(t, "p", "Pending a=wait:ContainerCreating")
	p.warning = &agent.Event{Reason: "FailedMount", Message: "configmap \"x\" not found\nand more"}
	want := "p/a: creating\n  last warning: FailedMount: configmap \"x\" not found …"
	if got := strings.Join(blockers(p, false), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	id := strings.Repeat("0123456789abcdef", 4)
	p.warning = &agent.Event{Reason: "FailedCreatePodSandBox", Message: "Failed to create pod sandbox: cannot run sandbox of pod p_default(1): cannot set up the pod's network: host port 80 is taken by sandbox " + id}
	want = "p/a: creating\n  last warning: FailedCreatePodSandBox: host port 80 is taken by sandbox 0123456789ab"
	if got := strings.Join(blockers(p, false), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	p = parsePod(t, "p", "Running a=ready")
	p.status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: "the status of readiness gate \"lb\" is False"}}
	if got, want := strings.Join(blockers(p, false), "\n"), `p: is not Ready (the status of readiness gate "lb" is False)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Each container's own failing check is on its line, once.
func TestBlockersTellWhichCheckFails(t *testing.T) {
	p := parsePod(t, "p", "Running a=run b=run c=ready")
	for c, text := range map[string]string{"a": "Readiness probe failed: port \"x\" is not known", "b": "Readiness probe failed: 404", "c": "Readiness probe failed: old"} {
		p.checks[c] = &agent.Event{Reason: "Unhealthy", Container: c, Message: text}
	}
	p.warning = p.checks["b"]
	const runs = "not ready: it runs, and its readiness probe has not succeeded: Readiness probe failed: "
	want := "p/a: " + runs + "port \"x\" is not known\np/b: " + runs + "404"
	if got := strings.Join(blockers(p, false), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	p.warning = &agent.Event{Reason: "FailedPostStartHook", Container: "b", Message: "what it said"}
	if got, want := strings.Join(blockers(p, false), "\n"), want+"\n  last warning of b: FailedPostStartHook: what it said"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What keeps a pod from being done is what still runs or waits.
func TestBlockersOfWhatIsToBeDone(t *testing.T) {
	for text, want := range map[string]string{
		"Running a=end:1:Error b=ready *s=ready": "p/b: running",
		"Running a=end:0 b=run":                  "p/b: running",
		"Pending *s=run a=wait:PodInitializing":  "p/s: running",
	} {
		if got := strings.Join(blockers(parsePod(t, "p", text), true), "\n"); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	// What a container that runs suffers from may be why it does not end.
	p := parsePod(t, "p", "Running a=run b=ready c=run")
	p.checks["a"] = &agent.Event{Reason: "Unhealthy", Container: "a", Message: "Readiness probe failed: HTTP 404"}
	p.checks["b"] = &agent.Event{Reason: "Unhealthy", Container: "b", Message: "Readiness probe failed: at first"}
	p.warning = p.checks["b"]
	p.status.ContainerStatuses[2].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}
	want := []string{"a: running: Readiness probe failed: HTTP 404", "b: running", "c: running again: before that OOMKilled"}
	if diff := cmp.Diff(want, p.causes(true)[:3]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPodsThatAreBeingStopped(t *testing.T) {
	for name, c := range map[string]struct {
		pod   string
		asked bool
		word  string
		block string
	}{
		"its status tells":               {"Running:Stopped a=ready", false, "stopping", "p: is being stopped"},
		"before anything ran":            {"Pending:Stopped a=wait:ContainerCreating", false, "stopping", "p: is being stopped"},
		"its status does not tell":       {"Running a=ready", true, "stopping", "p: is being stopped"},
		"nothing is known of it":         {"unknown", true, "stopping", "p: is being stopped"},
		"it has ended":                   {"Failed:Stopped a=end:0", true, "failed: Stopped", "p: failed: Stopped"},
		"nobody asked":                   {"Running a=ready", false, "ready", "p: is Running"},
		"its sidecar goes on":            {"Running a=end:0 *s=ready", false, "stopping", "p: is being stopped"},
		"its end is that of a container": {"Succeeded a=end:0", false, "succeeded", "p: succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			p := parsePod(t, "p", c.pod)
			p.asked, p.spec.RestartPolicy = c.asked, corev1.RestartPolicyNever
			if word, _ := podWord(p); word != c.word {
				t.Errorf("its state is %q, want %q", word, c.word)
			}
			if c.word == "ready" {
				p.status.Conditions = nil
			}
			if got := strings.Join(blockers(p, false), "\n"); got != c.block {
				t.Errorf("it blocks with %q, want %q", got, c.block)
			}
		})
	}
}
