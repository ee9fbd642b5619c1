package podruntimetest

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime"
)

// bench plays the worker for one test: it carries out actions one by one.
type bench struct {
	Target
	t     *testing.T
	pokes chan types.UID
}

func newBench(t *testing.T, target Target) *bench {
	b := &bench{Target: target, t: t, pokes: make(chan types.UID, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- b.Runtime.Events(ctx, func(uid types.UID) {
			select {
			case b.pokes <- uid:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("events: %v", err)
		}
	})
	return b
}

// pod makes a pod with one container "app" that runs these arguments, and sees
// to it that nothing of it is left.
func (b *bench) pod(args ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      podName(b.t.Name()),
			Namespace: "podruntimetest", UID: uuid.NewUUID(),
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](30),
			DNSPolicy:                     corev1.DNSDefault,
			Containers: []corev1.Container{{
				Name: "app", Image: b.Image, Args: args, ImagePullPolicy: corev1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			}},
		},
	}
	if b.Alter != nil {
		b.Alter(pod)
	}
	b.t.Cleanup(func() { b.cleanUp(pod) })
	return pod
}

// podName makes a pod's name from that of a test.
func podName(test string) string {
	name := strings.Map(plain, strings.ToLower(test))
	return strings.Trim(name[max(0, len(name)-40):], "-")
}

func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

func (b *bench) cleanUp(pod *corev1.Pod) {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = ptr.To(metav1.Now())
	o := b.observe(pod)
	for _, c := range o.Containers {
		if c.State == lifecycle.ContainerRunning {
			b.must(pod, lifecycle.Action{Kind: lifecycle.StopContainer, Container: c.Name, ContainerID: c.ID, Until: time.Now()})
		}
		b.must(pod, lifecycle.Action{Kind: lifecycle.RemoveContainer, Container: c.Name, ContainerID: c.ID})
	}
	for _, s := range o.Sandboxes {
		b.must(pod, lifecycle.Action{Kind: lifecycle.StopSandbox, SandboxID: s.ID})
		b.must(pod, lifecycle.Action{Kind: lifecycle.RemoveSandbox, SandboxID: s.ID})
	}
	b.must(pod, lifecycle.Action{Kind: lifecycle.RemovePod})
	if o := b.observe(pod); len(o.Sandboxes)+len(o.Containers) > 0 || o.Leftovers {
		b.t.Errorf("something is left: %+v", o)
	}
}

// do carries out an action, and checks that the next observation is newer.
func (b *bench) do(pod *corev1.Pod, a lifecycle.Action) (podruntime.Result, error) {
	b.t.Helper()
	result, err := b.Runtime.Do(context.Background(), pod, a)
	ended := time.Now().Round(0)
	o, observeErr := b.Runtime.Observe(context.Background(), pod)
	if observeErr != nil {
		b.t.Fatal(observeErr)
	}
	if o.At.Before(ended) {
		b.t.Errorf("%s ended at %s and the observation after it is of %s", a.Key(), ended, o.At)
	}
	return result, err
}

func (b *bench) must(pod *corev1.Pod, a lifecycle.Action) podruntime.Result {
	b.t.Helper()
	result, err := b.do(pod, a)
	if err != nil {
		b.t.Fatalf("%s: %v", a.Key(), err)
	}
	return result
}

func (b *bench) observe(pod *corev1.Pod) lifecycle.Observed {
	b.t.Helper()
	o, err := b.Runtime.Observe(context.Background(), pod)
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

// sandbox makes volumes and sandbox and returns it.
func (b *bench) sandbox(pod *corev1.Pod) lifecycle.Sandbox {
	b.t.Helper()
	b.must(pod, lifecycle.Action{Kind: lifecycle.PrepareVolumes})
	b.must(pod, lifecycle.Action{Kind: lifecycle.CreateSandbox})
	o := b.observe(pod)
	if len(o.Sandboxes) != 1 || !o.Sandboxes[0].Ready {
		b.t.Fatalf("sandboxes %+v", o.Sandboxes)
	}
	return o.Sandboxes[0]
}

// starting is the action that starts an attempt of app.
func (b *bench) starting(pod *corev1.Pod, s lifecycle.Sandbox, attempt int) lifecycle.Action {
	b.t.Helper()
	pulled := b.must(pod, lifecycle.Action{Kind: lifecycle.PullImage, Container: "app", Attempt: attempt})
	if pulled.ImageRef == "" {
		b.t.Fatal("PullImage names no image")
	}
	return lifecycle.Action{
		Kind: lifecycle.StartContainer, Container: "app", SandboxID: s.ID, Attempt: attempt, ImageRef: pulled.ImageRef,
	}
}

// up starts a pod and returns its container.
func (b *bench) up(pod *corev1.Pod) (lifecycle.Sandbox, lifecycle.Container) {
	b.t.Helper()
	s := b.sandbox(pod)
	id := b.must(pod, b.starting(pod, s, 0)).ContainerID
	return s, b.container(pod, id)
}

// settle gives a program time to ask for signals: process 1 of a container does
// not get those it does not ask for.
func (b *bench) settle() { time.Sleep(500 * time.Millisecond) }

func (b *bench) container(pod *corev1.Pod, id string) lifecycle.Container {
	b.t.Helper()
	o := b.observe(pod)
	for _, c := range o.Containers {
		if c.ID == id {
			return c
		}
	}
	b.t.Fatalf("container %q is not seen: %+v", id, o)
	return lifecycle.Container{}
}

// ended waits, by pokes alone, until the container has ended.
func (b *bench) ended(pod *corev1.Pod, id string) lifecycle.Container {
	b.t.Helper()
	limit := time.After(patience)
	for {
		if c := b.container(pod, id); c.State == lifecycle.ContainerExited {
			return c
		}
		select {
		case <-b.pokes:
		case <-limit:
			b.t.Fatalf("the end is not told: %+v", b.container(pod, id))
		}
	}
}
