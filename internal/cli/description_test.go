package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/agent"
)

// troubled is a pod with some of all that can be said.
func troubled(t *testing.T) agent.Description {
	t.Helper()
	d := aDescription(t, "web", "Running +init=end:0:Completed *proxy=ready app=run later=wait:CrashLoopBackOff:back-off:10s:restarting:failed",
		happened(0, 1, agent.Event{Type: "Normal", Reason: "Pulled", Container: "app", Message: "Container image is there"}),
		happened(50*time.Second, 12, agent.Event{Type: "Warning", Reason: "Unhealthy", Container: "app", Message: "Readiness probe failed: HTTP 503"}),
		happened(55*time.Second, 2, agent.Event{Type: "Warning", Reason: "FailedMount", Message: "configmap \"x\" not found"}),
	)
	pod := d.Pod
	pod.Labels = map[string]string{"app": "web", "tier": "front"}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	app := &pod.Spec.Containers[0]
	app.Image, app.Args = "example.com/app:1", []string{"serve", "--name", "a b"}
	app.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, HostPort: 80, Protocol: "TCP"}}
	app.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("64Mi"), "cpu": resource.MustParse("500m")}
	app.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)}}}
	app.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	app.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}}}
	status := &pod.Status
	started := metav1.NewTime(epoch)
	status.StartTime, status.PodIPs = &started, []corev1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}}
	status.QOSClass = corev1.PodQOSBurstable
	status.ContainerStatuses[0].State.Running.StartedAt = started
	status.ContainerStatuses[1].RestartCount = 4
	status.ContainerStatuses[1].LastTerminationState.Terminated = end(30*time.Second, 3, "panic: no route\n  in main.go\x1b[31m")
	status.Conditions[0].Reason, status.Conditions[0].LastTransitionTime = "ContainersNotReady", started
	status.Conditions[0].Message = "containers with unready status: [app later]"
	check := func(after time.Duration, ok bool, output string) agent.ProbeCheck {
		return agent.ProbeCheck{Time: metav1.NewMicroTime(epoch.Add(after)), OK: ok, Output: output}
	}
	d.Probes = []agent.ProbeRecord{
		{Container: "app", Kind: "readiness", Checks: []agent.ProbeCheck{check(0, true, "of a container that is no more")}},
		{Container: "app", Kind: "startup", Period: metav1.Duration{Duration: time.Second}, Checks: []agent.ProbeCheck{check(0, true, "")}},
		{Container: "app", Kind: "readiness", Live: true, Period: metav1.Duration{Duration: 10 * time.Second}, Checks: []agent.ProbeCheck{
			check(0, true, ""), check(40*time.Second, false, "HTTP 500"), check(50*time.Second, false, "HTTP 503"),
		}},
	}
	return d
}

func TestADescriptionSaysAllThereIsToSay(t *testing.T) {
	before := time.Local
	time.Local = time.UTC
	defer func() { time.Local = before }()
	golden(t, "describe.txt", description(troubled(t), epoch.Add(time.Minute)))
	ended := aDescription(t, "job", "Failed app=end:3:Error")
	ended.Pod.Status.ContainerStatuses[0].State.Terminated = end(5*time.Second, 3, "the disk is full")
	golden(t, "describe-ended.txt", description(ended, epoch.Add(time.Minute)))
	timedOut := aDescription(t, "late", "Failed:TimedOut app=end:0:Completed")
	timedOut.Pod.Status.Message = "not done when the --timeout of berth run was over, 4s: app: running: Readiness probe failed: HTTP 404"
	timedOut.Pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/nope", Port: intstr.FromInt32(80)}}}
	golden(t, "describe-timed-out.txt", description(timedOut, epoch.Add(time.Minute)))
	golden(t, "describe-fresh.txt", description(aDescription(t, "fresh", "unknown"), epoch.Add(time.Minute)))
}

// An agent that takes over does not know the checks of the one before.
func TestWhyNoCheckOfAProbeIsKnown(t *testing.T) {
	for state, want := range map[string]string{
		"unknown":                      "not checked yet",
		"Pending a=wait:ErrImagePull":  "not checked yet",
		"Running a=run":                "no check is known yet",
		"Failed a=end:1:Error":         "not checked any more; those that failed are among the events",
		"Running a=wait:CrashLoop/end": "not checked any more; those that failed are among the events",
	} {
		text, after := strings.CutSuffix(state, "/end")
		p := parsePod(t, "p", text)
		var is *corev1.ContainerStatus
		if p.status != nil {
			is = &p.status.ContainerStatuses[0]
			if after {
				is.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{}
			}
		}
		if got := unchecked(is); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}

// What programs get is the whole description, in both forms.
func TestADescriptionForPrograms(t *testing.T) {
	d := troubled(t)
	for _, form := range []string{"json", "yaml"} {
		var out bytes.Buffer
		if err := encode(&out, d, form); err != nil {
			t.Fatal(err)
		}
		data := out.Bytes()
		if form == "yaml" {
			var err error
			if data, err = yaml.YAMLToJSON(data); err != nil {
				t.Fatal(err)
			}
		}
		var got agent.Description
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Events) != 3 || got.Events[1].Count != 12 || got.Events[1].Reason != "Unhealthy" || len(got.Probes) != 3 ||
			got.Probes[2].Checks[2].Output != "HTTP 503" || got.Pod.Status.ContainerStatuses[1].RestartCount != 4 {
			t.Errorf("as %s:\n%s", form, &out)
		}
	}
}
