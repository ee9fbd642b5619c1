package podruntimetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime"
)

// Ability is something that not every runtime under test has.
type Ability string

// The abilities. A runtime in memory has none of them.
const (
	Programs Ability = "programs" // containers run the demo image's program
)

// Target is a runtime under test.
type Target struct {
	Runtime podruntime.Runtime
	// Image holds berth-demo and is present: containers are given its
	// arguments.
	Image string
	Has   []Ability
	// Alter changes each pod before it is used; optional.
	Alter func(*corev1.Pod)
}

// patience bounds what should happen at once.
const patience = 20 * time.Second

// Run checks that the runtime keeps the contract of podruntime.Runtime. start
// is called for each case, within its subtest.
func Run(t *testing.T, start func(t *testing.T) Target) {
	for _, c := range []struct {
		name  string
		needs []Ability
		test  func(*bench)
	}{
		{"a pod comes, runs and goes", nil, (*bench).life},
		{"every action can be repeated", nil, (*bench).repeats},
		{"an end is told, with its code", nil, (*bench).tellsEnd},
		{"a stubborn container is killed in time", nil, (*bench).kills},
		{"a grace period is shortened", nil, (*bench).shortens},
		{"a cancelled action ends, and is seen", nil, (*bench).cancels},
		{"a command that is not there", []Ability{Programs}, (*bench).cannotRun},
		{"an image that must not be pulled", []Ability{Programs}, (*bench).neverPulls},
		{"an image with a wrong name", []Ability{Programs}, (*bench).wrongName},
		{"a ConfigMap that is not there", []Ability{Programs}, (*bench).missingConfig},
		{"commands in a container", []Ability{Programs}, (*bench).executes},
		{"last words", []Ability{Programs}, (*bench).lastWords},
		{"a second attempt beside the first", nil, (*bench).attempts},
		{"pods are listed", nil, (*bench).lists},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := start(t)
			for _, need := range c.needs {
				if !slices.Contains(target.Has, need) {
					t.Skipf("the runtime has no %s", need)
				}
			}
			c.test(newBench(t, target))
		})
	}
}

func (b *bench) life() {
	pod := b.pod("sleep", "inf")
	if o := b.observe(pod); len(o.Sandboxes)+len(o.Containers) > 0 || o.Leftovers || o.At.IsZero() {
		b.t.Errorf("before anything: %+v", o)
	}
	s, c := b.up(pod)
	if c.State != lifecycle.ContainerRunning || c.Name != "app" || c.Attempt != 0 || c.SandboxID != s.ID ||
		c.Hash != lifecycle.ContainerHash(&pod.Spec.Containers[0]) || c.StartedAt.IsZero() {
		b.t.Errorf("it runs as %+v", c)
	}
	if !b.observe(pod).Leftovers {
		b.t.Error("the pod's folder is not seen")
	}
	if first, second := b.observe(pod), b.observe(pod); second.At.Before(first.At) {
		b.t.Errorf("observed at %s, then at %s", first.At, second.At)
	}
	// cleanUp takes it down and checks.
}

func (b *bench) repeats() {
	pod := b.pod("sleep", "inf")
	b.must(pod, lifecycle.Action{Kind: lifecycle.PrepareVolumes})
	s := b.sandbox(pod)
	start := b.starting(pod, s, 0)
	first := b.must(pod, start)
	if again := b.must(pod, start); again != first {
		b.t.Errorf("started %+v, then %+v", first, again)
	}
	if n := len(b.observe(pod).Containers); n != 1 {
		b.t.Fatalf("%d containers", n)
	}
	b.settle()
	for _, a := range []lifecycle.Action{
		{Kind: lifecycle.StopContainer, Container: "app", ContainerID: first.ContainerID, Until: time.Now().Add(patience)},
		{Kind: lifecycle.RemoveContainer, Container: "app", ContainerID: first.ContainerID},
		{Kind: lifecycle.StopSandbox, SandboxID: s.ID},
		{Kind: lifecycle.RemoveSandbox, SandboxID: s.ID},
		{Kind: lifecycle.RemovePod},
	} {
		b.must(pod, a)
		b.must(pod, a)
	}
}

func (b *bench) tellsEnd() {
	pod := b.pod("exit", "7", "--after", "500ms")
	_, c := b.up(pod)
	c = b.ended(pod, c.ID)
	if c.ExitCode != 7 || c.ExitUnknown || c.FinishedAt.Before(c.StartedAt) {
		b.t.Errorf("it ended as %+v", c)
	}
}

func (b *bench) kills() {
	pod := b.pod("ignore-term")
	_, c := b.up(pod)
	b.settle()
	until := time.Now().Add(1500 * time.Millisecond)
	b.must(pod, lifecycle.Action{Kind: lifecycle.StopContainer, Container: "app", ContainerID: c.ID, Until: until})
	if now := time.Now(); now.Before(until) {
		b.t.Errorf("killed %s too early", until.Sub(now))
	}
	if c = b.container(pod, c.ID); c.State != lifecycle.ContainerExited || c.ExitCode != 137 {
		b.t.Errorf("it ended as %+v", c)
	}
}

func (b *bench) shortens() {
	pod := b.pod("ignore-term")
	_, c := b.up(pod)
	b.settle()
	stop := lifecycle.Action{Kind: lifecycle.StopContainer, Container: "app", ContainerID: c.ID, Until: time.Now().Add(time.Hour)}
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() {
		_, err := b.Runtime.Do(ctx, pod, stop)
		first <- err
	}()
	time.Sleep(300 * time.Millisecond)
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		b.t.Errorf("the cancelled stop says %v", err)
	}
	stop.Until = time.Now().Add(time.Second)
	b.must(pod, stop)
	if time.Now().Before(stop.Until) {
		b.t.Error("it ended before its time was up")
	}
}

func (b *bench) cancels() {
	pod := b.pod("sleep", "inf")
	s := b.sandbox(pod)
	start := b.starting(pod, s, 0)
	for after := time.Duration(0); after < 60*time.Millisecond; after += 6 * time.Millisecond {
		ctx, cancel := context.WithTimeout(context.Background(), after)
		result, err := b.Runtime.Do(ctx, pod, start)
		cancel()
		if err == nil && result.ContainerID == "" {
			b.t.Fatal("no error and no container")
		}
	}
	result := b.must(pod, start)
	o := b.observe(pod)
	running := 0
	for _, c := range o.Containers {
		if c.State == lifecycle.ContainerRunning {
			running++
		}
	}
	if running != 1 || b.container(pod, result.ContainerID).State != lifecycle.ContainerRunning {
		b.t.Errorf("%d run: %+v", running, o.Containers)
	}
}

// failsWith checks an action that must fail for a reason.
func (b *bench) failsWith(pod *corev1.Pod, a lifecycle.Action, reason, word string) podruntime.Result {
	b.t.Helper()
	result, err := b.do(pod, a)
	var f *lifecycle.Failed
	if !errors.As(err, &f) || f.Reason != reason || !strings.Contains(f.Message, word) {
		b.t.Errorf("%s: got %v, want %s with %q", a.Key(), err, reason, word)
	}
	return result
}

func (b *bench) cannotRun() {
	pod := b.pod()
	pod.Spec.Containers[0].Command = []string{"/no-such-command"}
	s := b.sandbox(pod)
	result := b.failsWith(pod, b.starting(pod, s, 0), lifecycle.ReasonRunContainerError, "no-such-command")
	if result.ContainerID == "" {
		b.t.Fatal("no container is named")
	}
	c := b.ended(pod, result.ContainerID)
	if c.Reason != lifecycle.ReasonContainerCannotRun || c.ExitCode == 0 || !strings.Contains(c.Message, "no-such-command") {
		b.t.Errorf("it ended as %+v", c)
	}
}

func (b *bench) neverPulls() {
	pod := b.pod()
	pod.Spec.Containers[0].Image = "berth.local/not-there:1"
	pod.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
	b.failsWith(pod, lifecycle.Action{Kind: lifecycle.PullImage, Container: "app"}, lifecycle.ReasonErrImageNeverPull, "berth.local/not-there:1")
}

func (b *bench) wrongName() {
	pod := b.pod()
	pod.Spec.Containers[0].Image = "UPPER:case"
	b.failsWith(pod, lifecycle.Action{Kind: lifecycle.PullImage, Container: "app"}, lifecycle.ReasonInvalidImageName, "UPPER:case")
}

func (b *bench) missingConfig() {
	pod := b.pod("sleep", "inf")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}, Key: "k"},
	}}}
	s := b.sandbox(pod)
	b.failsWith(pod, b.starting(pod, s, 0), lifecycle.ReasonCreateContainerConfigError, "absent")
	if n := len(b.observe(pod).Containers); n != 0 {
		b.t.Errorf("%d containers", n)
	}
}

func (b *bench) executes() {
	pod := b.pod("sleep", "inf")
	_, c := b.up(pod)
	for _, want := range []struct {
		command []string
		code    int32
		output  string
	}{
		{[]string{"/bin/echo", "hello"}, 0, "hello\n"},
		{[]string{"/bin/false"}, 1, ""},
		{[]string{"/berth-demo", "exit", "42"}, 42, ""},
	} {
		output, code, err := b.Runtime.Exec(context.Background(), c.ID, want.command)
		if err != nil || code != want.code || string(output) != want.output {
			b.t.Errorf("%q: code %d, output %q, %v", want.command, code, output, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, _, err := b.Runtime.Exec(ctx, c.ID, []string{"/bin/sleep", "inf"}); !errors.Is(err, context.DeadlineExceeded) {
		b.t.Errorf("a command without end: %v", err)
	}
	if _, _, err := b.Runtime.Exec(context.Background(), c.ID, []string{"/no-such-command"}); err == nil {
		b.t.Error("a command that is not there did not fail")
	}
}

func (b *bench) lastWords() {
	for name, c := range map[string]struct {
		policy  corev1.TerminationMessagePolicy
		command []string
		want    string
	}{
		"file":    {corev1.TerminationMessageReadFile, []string{"/berth-demo", "write", "/dev/termination-log", "good", "bye"}, "good bye"},
		"log":     {corev1.TerminationMessageFallbackToLogsOnError, []string{"/berth-demo", "crash-after", "0"}, "crash"},
		"no fall": {corev1.TerminationMessageFallbackToLogsOnError, []string{"/berth-demo", "echo", "success"}, ""},
	} {
		b.t.Run(name, func(t *testing.T) {
			sub := newBench(t, b.Target)
			pod := sub.pod()
			pod.Spec.Containers[0].Command = c.command
			pod.Spec.Containers[0].TerminationMessagePolicy = c.policy
			_, container := sub.up(pod)
			container = sub.ended(pod, container.ID)
			if c.want == "" && container.Message != "" || !strings.Contains(container.Message, c.want) {
				t.Errorf("message %q, want %q", container.Message, c.want)
			}
		})
	}
}

func (b *bench) attempts() {
	pod := b.pod("exit", "3", "--after", "200ms")
	s, c := b.up(pod)
	b.ended(pod, c.ID)
	second := b.must(pod, b.starting(pod, s, 1)).ContainerID
	if second == c.ID {
		b.t.Fatal("the second attempt is the first")
	}
	if c = b.ended(pod, second); c.Attempt != 1 {
		b.t.Errorf("attempt %d", c.Attempt)
	}
	if n := len(b.observe(pod).Containers); n != 2 {
		b.t.Errorf("%d containers, want both", n)
	}
}

func (b *bench) lists() {
	pod := b.pod("sleep", "inf")
	want := podruntime.Ref{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
	listed := func() (podruntime.Ref, bool) {
		refs, err := b.Runtime.Pods(context.Background())
		if err != nil {
			b.t.Fatal(err)
		}
		i := slices.IndexFunc(refs, func(r podruntime.Ref) bool { return r.UID == pod.UID })
		if i < 0 {
			return podruntime.Ref{}, false
		}
		return refs[i], true
	}
	if _, ok := listed(); ok {
		b.t.Error("listed before it is there")
	}
	b.must(pod, lifecycle.Action{Kind: lifecycle.PrepareVolumes})
	if _, ok := listed(); !ok {
		b.t.Error("not listed with a folder only")
	}
	b.must(pod, lifecycle.Action{Kind: lifecycle.CreateSandbox})
	if got, _ := listed(); got != want {
		b.t.Errorf("listed as %+v, want %+v", got, want)
	}
}
