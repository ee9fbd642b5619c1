package lifecycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestAPodEndsByItself(t *testing.T) {
	const running = -1
	always := ptr.To(corev1.ContainerRestartPolicyAlways)
	rule := []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{3}},
	}}
	for name, c := range map[string]struct {
		policy             corev1.RestartPolicy
		main               corev1.Container
		init, side, exited int32
		want               bool
	}{
		"its work is done":                  {"Never", corev1.Container{}, 0, running, 0, true},
		"its work has failed":               {"Never", corev1.Container{}, 0, running, 1, true},
		"it works":                          {"Never", corev1.Container{}, 0, running, running, false},
		"nothing runs":                      {"Never", corev1.Container{}, 0, 0, 0, false},
		"it starts again":                   {"Always", corev1.Container{}, 0, running, 0, false},
		"it starts again for having failed": {"OnFailure", corev1.Container{}, 0, running, 1, false},
		"it has done well":                  {"OnFailure", corev1.Container{}, 0, running, 0, true},
		"a rule starts it again":            {"Never", corev1.Container{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever), RestartPolicyRules: rule}, 0, running, 3, false},
		"no rule starts it again":           {"Always", corev1.Container{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever), RestartPolicyRules: rule}, 0, running, 4, true},
		"its init container has failed":     {"Never", corev1.Container{}, 1, running, running, true},
		"its init container is tried again": {"OnFailure", corev1.Container{}, 1, running, running, false},
	} {
		state := func(name string, code int32) corev1.ContainerStatus {
			s := corev1.ContainerStatus{Name: name}
			if code == running {
				s.State.Running = &corev1.ContainerStateRunning{}
			} else {
				s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: code}
			}
			return s
		}
		c.main.Name = "main"
		spec := &corev1.PodSpec{
			RestartPolicy:  c.policy,
			InitContainers: []corev1.Container{{Name: "side", RestartPolicy: always}, {Name: "init"}},
			Containers:     []corev1.Container{c.main},
		}
		got := Ending(spec, &corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{state("side", c.side), state("init", c.init)},
			ContainerStatuses:     []corev1.ContainerStatus{state("main", c.exited)},
		})
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
