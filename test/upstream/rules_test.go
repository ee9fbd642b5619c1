package upstream

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/berth-run/berth/internal/lifecycle"
)

// A container that ended starts again where the kubelet would start it again.
func TestRestartsAreTheKubelets(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	restarted := 0
	for range 3000 {
		spec := corev1.Container{Name: "app", Image: "image"}
		if p := []corev1.ContainerRestartPolicy{"", corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure,
			corev1.ContainerRestartPolicyNever}[rng.IntN(4)]; p != "" {
			spec.RestartPolicy = &p
			for range rng.IntN(3) {
				spec.RestartPolicyRules = append(spec.RestartPolicyRules, corev1.ContainerRestartRule{
					Action: []corev1.ContainerRestartRuleAction{corev1.ContainerRestartRuleActionRestart,
						corev1.ContainerRestartRuleActionRestartAllContainers}[rng.IntN(2)],
					ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
						Operator: []corev1.ContainerRestartRuleOnExitCodesOperator{corev1.ContainerRestartRuleOnExitCodesOpIn,
							corev1.ContainerRestartRuleOnExitCodesOpNotIn}[rng.IntN(2)],
						Values: []int32{int32(rng.IntN(4)), int32(rng.IntN(4))},
					},
				})
			}
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{spec}, RestartPolicy: []corev1.RestartPolicy{
			corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}[rng.IntN(3)]}}
		code := int32(rng.IntN(4))
		want := podutil.ContainerShouldRestart(spec, pod.Spec, code)
		if want {
			restarted++
		}
		if got := restarts(pod, code); got != want {
			t.Fatalf("exit code %d of %+v in a pod with %s: restarts %v, the kubelet %v", code, spec, pod.Spec.RestartPolicy, got, want)
		}
	}
	if restarted == 0 || restarted == 3000 {
		t.Errorf("%d of 3000 restarted", restarted)
	}
}

// restarts says whether the core goes on with a pod whose only container ended.
func restarts(pod *corev1.Pod, code int32) bool {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	seen := lifecycle.Observed{At: now,
		Sandboxes: []lifecycle.Sandbox{{ID: "box", Ready: true, CreatedAt: now, IPs: []string{"198.51.100.7"}}},
		Containers: []lifecycle.Container{{ID: "app-1", Name: "app", SandboxID: "box", State: lifecycle.ContainerExited,
			CreatedAt: now, StartedAt: now, FinishedAt: now, ExitCode: code}}}
	h := lifecycle.History{}.Apply(lifecycle.Looked{Observed: seen})
	_, h = lifecycle.Step(lifecycle.Input{Pod: pod, Observed: seen, History: h, Now: now})
	return h.Termination == nil
}

// The quality of service class is upstream's, for any pod.
func TestQOSClassIsUpstreams(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	quantities := []string{"", "0", "100m", "0.1", "1", "1000m", "1Gi"}
	list := func() corev1.ResourceList {
		l := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi"} {
			if q := quantities[rng.IntN(len(quantities))]; q != "" {
				l[name] = resource.MustParse(q)
			}
		}
		return l
	}
	resources := func() corev1.ResourceRequirements {
		r := corev1.ResourceRequirements{Requests: list(), Limits: list()}
		switch rng.IntN(4) {
		case 0:
			r.Requests = r.Limits.DeepCopy()
		case 1:
			r = corev1.ResourceRequirements{}
		}
		return r
	}
	seen := map[corev1.PodQOSClass]int{}
	for range 20000 {
		pod := &corev1.Pod{}
		for range rng.IntN(2) {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Resources: resources()})
		}
		for range 1 + rng.IntN(2) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: resources()})
		}
		if rng.IntN(4) == 0 {
			pod.Spec.Resources = new(resources())
		}
		want := qos.ComputePodQOS(pod)
		seen[want]++
		if got := lifecycle.QOSClass(pod); got != want {
			t.Fatalf("%s, upstream %s: %+v", got, want, pod.Spec)
		}
	}
	if len(seen) != 3 {
		t.Errorf("only %v were compared", seen)
	}
}

// The hash changes with the fields that change the kubelet's, and no others.
func TestHashIsAsSensitiveAsTheKubelets(t *testing.T) {
	fields := reflect.TypeFor[corev1.Container]()
	changed := 0
	for i := range fields.NumField() {
		a := corev1.Container{Name: "app", Image: "image"}
		b := a
		f := reflect.ValueOf(&b).Elem().Field(i)
		set(f)
		ours := lifecycle.ContainerHash(&a) != lifecycle.ContainerHash(&b)
		theirs := container.HashContainer(&a) != container.HashContainer(&b)
		if ours != theirs {
			t.Errorf("%s: our hash changes: %v, the kubelet's: %v", fields.Field(i).Name, ours, theirs)
		}
		if theirs {
			changed++
		}
	}
	if changed != 2 {
		t.Errorf("%d fields change the kubelet's hash", changed)
	}
}

// set gives v some value that is not its zero value.
func set(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("changed")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		set(v.Field(0))
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem())
		v.Set(m)
	default:
		panic(fmt.Sprintf("no value for %s", v.Type()))
	}
}
