package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/lifecycle"
)

// randomPod makes a pod of up to three containers, init containers and sidecars,
// and the scripts they follow.
func randomPod(rng *rand.Rand, name string) (*corev1.Pod, map[string]*script) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Generation: 1},
		Spec: corev1.PodSpec{
			RestartPolicy: []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure,
				corev1.RestartPolicyNever}[rng.IntN(3)],
			TerminationGracePeriodSeconds: ptr.To([]int64{30, 5, 1, 0}[rng.IntN(4)]),
		},
	}
	if rng.IntN(10) == 0 {
		pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(10 + rng.IntN(1000)))
	}
	scripts := map[string]*script{}
	for i := range rng.IntN(4) {
		c := corev1.Container{Name: fmt.Sprintf("init%d", i), Image: "init"}
		s := randomScript(rng)
		if rng.IntN(2) == 0 {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			decorate(rng, &c)
			if rng.IntN(5) == 0 {
				c.RestartPolicyRules = []corev1.ContainerRestartRule{onExit(corev1.ContainerRestartRuleActionRestartAllContainers)}
			}
		} else {
			for j := range s.runs {
				s.runs[j].For = time.Duration(rng.Int64N(int64(20*time.Second))) + time.Millisecond
				if rng.IntN(3) > 0 {
					s.runs[j].Code = 0
				}
			}
			s.runs[len(s.runs)-1].Code = 0
		}
		scripts[c.Name] = s
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range 1 + rng.IntN(3) {
		c := corev1.Container{Name: fmt.Sprintf("main%d", i), Image: "main"}
		decorate(rng, &c)
		if rng.IntN(5) == 0 {
			c.RestartPolicy = ptr.To([]corev1.ContainerRestartPolicy{corev1.ContainerRestartPolicyAlways,
				corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever}[rng.IntN(3)])
			if rng.IntN(2) == 0 {
				c.RestartPolicyRules = []corev1.ContainerRestartRule{onExit([]corev1.ContainerRestartRuleAction{
					corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers}[rng.IntN(2)])}
			}
		}
		scripts[c.Name] = randomScript(rng)
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod, scripts
}

// onExit is a rule for two of the exit codes that scripts have.
func onExit(do corev1.ContainerRestartRuleAction) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{Action: do, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
		Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{3, 137}}}
}

func randomScript(rng *rand.Rand) *script {
	s := &script{termDelay: time.Duration(rng.Int64N(int64(3 * time.Second))), termCode: []int32{0, 143, 1}[rng.IntN(3)]}
	if rng.IntN(5) == 0 {
		s.termDelay = -1
	}
	for range 1 + rng.IntN(4) {
		r := run{For: time.Duration(rng.Int64N(int64(2*time.Minute))) + time.Millisecond, Code: []int32{0, 1, 3, 137}[rng.IntN(4)]}
		if rng.IntN(3) == 0 {
			r.For = 0
		}
		s.runs = append(s.runs, r)
	}
	return s
}

// decorate gives a container probes and hooks, some.
func decorate(rng *rand.Rand, c *corev1.Container) {
	probe := func() *corev1.Probe {
		p := &corev1.Probe{PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1, TimeoutSeconds: 1}
		if rng.IntN(4) == 0 {
			p.TerminationGracePeriodSeconds = ptr.To(int64(rng.IntN(20)))
		}
		return p
	}
	if rng.IntN(4) == 0 {
		c.StartupProbe = probe()
	}
	if rng.IntN(3) == 0 {
		c.LivenessProbe = probe()
	}
	if rng.IntN(3) == 0 {
		c.ReadinessProbe = probe()
		c.ReadinessProbe.TerminationGracePeriodSeconds = nil
	}
	hook := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}
	if rng.IntN(4) == 0 {
		c.Lifecycle = &corev1.Lifecycle{PreStop: hook}
	}
	if rng.IntN(6) == 0 {
		if c.Lifecycle == nil {
			c.Lifecycle = &corev1.Lifecycle{}
		}
		c.Lifecycle.PostStart = hook
	}
}

// randomFaults are what goes wrong in a run of length d.
func randomFaults(rng *rand.Rand, pod *corev1.Pod, d time.Duration) []fault.Fault {
	var faults []fault.Fault
	at := func() time.Duration {
		if rng.IntN(3) == 0 {
			return d + time.Duration(rng.Int64N(int64(40*time.Second))).Round(time.Millisecond) // while the pod ends
		}
		return time.Duration(rng.Int64N(int64(d))).Round(time.Millisecond)
	}
	kinds := []lifecycle.ActionKind{lifecycle.PrepareVolumes, lifecycle.CreateSandbox, lifecycle.PullImage,
		lifecycle.StartContainer, lifecycle.StopContainer, lifecycle.RemoveContainer, lifecycle.StopSandbox,
		lifecycle.RemoveSandbox, lifecycle.RemovePod, lifecycle.RunPostStart, lifecycle.RunPreStop}
	kind := func() lifecycle.ActionKind { return kinds[rng.IntN(len(kinds))] }
	list := allContainers(pod)
	name := func() string { return list[rng.IntN(len(list))].Name }
	for range rng.IntN(6) {
		var f fault.Fault
		switch rng.IntN(10) {
		case 0, 1:
			f = fault.Fault{Kind: fault.Fail, Action: kind(), Times: 1 + rng.IntN(4)}
		case 2:
			f = fault.Fault{Kind: fault.Slow, Action: kind(), For: time.Duration(1+rng.IntN(90)) * time.Second}
		case 3:
			f = fault.Fault{Kind: fault.LateEffect, Action: kind(), Times: 1 + rng.IntN(2)}
		case 4:
			f = fault.Fault{Kind: fault.KillAgent}
		case 5:
			f = fault.Fault{Kind: fault.SandboxLost}
		case 6:
			f = fault.Fault{Kind: fault.LoseEvent, Times: 1 + rng.IntN(3)}
		case 7:
			f = fault.Fault{Kind: fault.Clock, For: time.Duration(rng.IntN(7200)-3600) * time.Second}
		case 8:
			f = fault.Fault{Kind: fault.Exit, Container: name(), Code: 3}
		case 9:
			f = fault.Fault{Kind: fault.DiskFull, For: time.Duration(1+rng.IntN(120)) * time.Second}
		}
		if f.Kind != fault.Slow || rng.IntN(2) == 0 {
			f.After = at()
		}
		faults = append(faults, f)
	}
	if rng.IntN(8) == 0 {
		faults = append(faults, fault.Fault{Kind: fault.RuntimeGone, After: at(), For: time.Duration(1+rng.IntN(120)) * time.Second})
	}
	return faults
}
