package probetiming

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(annotations map[string]string) *corev1.Pod {
	probe := &corev1.Probe{PeriodSeconds: 3, TimeoutSeconds: 2, InitialDelaySeconds: 1}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "proxy", StartupProbe: probe}},
			Containers:     []corev1.Container{{Name: "app", ReadinessProbe: probe, LivenessProbe: &corev1.Probe{}}},
		},
	}
}

func TestProbeTiming(t *testing.T) {
	tests := map[string]struct {
		container   string
		kind        Kind
		annotations map[string]string
		want        string
	}{
		"fields alone":                      {"app", Readiness, nil, "3s 2s 1s"},
		"defaults":                          {"app", Liveness, nil, "10s 1s 0s"},
		"no such probe":                     {"app", Startup, nil, "0s 0s 0s"},
		"no such container":                 {"db", Startup, nil, "0s 0s 0s"},
		"annotations win":                   {"app", Readiness, map[string]string{Prefix + "app.readiness.period": "250ms", Prefix + "app.readiness.timeout": "50ms", Prefix + "app.readiness.initial-delay": "0s"}, "250ms 50ms 0s"},
		"a sidecar":                         {"proxy", Startup, map[string]string{Prefix + "proxy.startup.period": "20ms"}, "20ms 2s 1s"},
		"of another probe or container":     {"app", Liveness, map[string]string{Prefix + "app.readiness.period": "250ms", Prefix + "proxy.liveness.period": "20ms"}, "10s 1s 0s"},
		"what Check refuses counts nothing": {"app", Readiness, map[string]string{Prefix + "app.readiness.period": "1ms", Prefix + "app.readiness.timeout": "soon"}, "3s 2s 1s"},
	}
	for name, test := range tests {
		every, limit, delay := ProbeTiming(pod(test.annotations), test.container, test.kind)
		if got := fmt.Sprint(every, " ", limit, " ", delay); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestCheck(t *testing.T) {
	tests := map[string]string{ // key and value → message
		"app.readiness.period=250ms":         "",
		"app.readiness.period=9ms":           "9ms is out of range",
		"app.readiness.period=25h":           "25h is out of range",
		"app.readiness.timeout=0":            "0 is out of range",
		"app.liveness.initial-delay=0":       "",
		"app.liveness.initial-delay=-1s":     "-1s is out of range",
		"app.liveness.period=5":              `"5" is not a duration`,
		"proxy.startup.period=1s":            "",
		"proxy.liveness.period=1s":           `the container "proxy" has no livenessProbe`,
		"db.liveness.period=1s":              `there is no container "db"`,
		"app.health.period=1s":               `"health" is not a kind of probe`,
		"app.liveness.failure-threshold=1":   `"failure-threshold" can't be set`,
		"period=1s":                          "is not an annotation that berth knows",
		"app.liveness.period.milliseconds=1": "is not an annotation that berth knows",
	}
	for in, want := range tests {
		var key, value string
		for i := range in {
			if in[i] == '=' {
				key, value = in[:i], in[i+1:]
			}
		}
		got := ""
		if problems := Check(pod(map[string]string{Prefix + key: value, "other/key": "x"})); len(problems) > 0 {
			got = problems[0].Message
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestAnUnknownKindHasNoProbe(t *testing.T) {
	if every, limit, delay := ProbeTiming(pod(nil), "app", "other"); every != 0 || limit != 0 || delay != time.Duration(0) {
		t.Error(every, limit, delay)
	}
}
