package lifecycle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestRestarts(t *testing.T) {
	exit := func(code int32) Exit { return Exit{Code: code} }
	unknown := Exit{Unknown: true}
	for name, c := range map[string]struct {
		policy    corev1.RestartPolicy
		container string // as in scenarios
		exit      Exit
		want      bool
		all       bool // starts all containers over
	}{
		"Always restarts after success":                   {"Always", "app", exit(0), true, false},
		"no policy is Always":                             {"", "app", exit(0), true, false},
		"OnFailure does not restart after success":        {"OnFailure", "app", exit(0), false, false},
		"OnFailure restarts after failure":                {"OnFailure", "app", exit(1), true, false},
		"OnFailure restarts after an unknown end":         {"OnFailure", "app", unknown, true, false},
		"Never does not restart":                          {"Never", "app", exit(1), false, false},
		"Never does not restart after an unknown end":     {"Never", "app", unknown, false, false},
		"the container's Always in a Never pod":           {"Never", "app(always)", exit(0), true, false},
		"the container's Never in an Always pod":          {"Always", "app(never)", exit(1), false, false},
		"the container's OnFailure after success":         {"Always", "app(onfailure)", exit(0), false, false},
		"the container's OnFailure after failure":         {"Never", "app(onfailure)", exit(9), true, false},
		"a rule that matches":                             {"Never", "app(never Restart:In:4+5)", exit(5), true, false},
		"a rule that does not match":                      {"Never", "app(never Restart:In:4+5)", exit(6), false, false},
		"NotIn matches what is not listed":                {"Never", "app(never Restart:NotIn:4+5)", exit(6), true, false},
		"NotIn does not match what is listed":             {"Never", "app(never Restart:NotIn:4+5)", exit(5), false, false},
		"a rule restarts after success too":               {"Never", "app(never Restart:In:0)", exit(0), true, false},
		"an unknown end matches no rule":                  {"Never", "app(never Restart:NotIn:4)", unknown, false, false},
		"RestartAllContainers restarts this one too":      {"Never", "app(never RestartAllContainers:In:4)", exit(4), true, true},
		"RestartAllContainers that does not match":        {"Never", "app(never RestartAllContainers:In:4)", exit(5), false, false},
		"an unknown end starts nothing over":              {"Always", "app(always RestartAllContainers:NotIn:4)", unknown, true, false},
		"the first rule that matches counts":              {"Never", "app(never Restart:In:4 RestartAllContainers:In:4)", exit(4), true, false},
		"a later rule counts if no earlier one matches":   {"Never", "app(never Restart:In:3 RestartAllContainers:In:4)", exit(4), true, true},
		"rules count before the container's own Always":   {"Never", "app(always RestartAllContainers:In:4)", exit(4), true, true},
		"a killed container failed":                       {"OnFailure", "app", exit(137), true, false},
		"negative codes are failures, as any but 0":       {"OnFailure", "app", exit(-1), true, false},
		"a policy of the container hides that of the pod": {"OnFailure", "app(never)", exit(1), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := containerFrom(c.container)
			if err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: c.policy}}
			if got := restarts(pod, &spec, c.exit); got != c.want {
				t.Errorf("restarts: %v", got)
			}
			if got := restartsAll(&spec, c.exit); got != c.all {
				t.Errorf("restartsAll: %v", got)
			}
		})
	}
}

func TestWaitsBetweenFailures(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		b    backoff
		want []time.Duration
	}{
		"pulls: 10 s doubling to 5 min": {pullBackoff, []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second,
			80 * time.Second, 160 * time.Second, 300 * time.Second, 300 * time.Second}},
		"cheap tries: 1 s doubling to 20 s": {retryBackoff, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second,
			8 * time.Second, 16 * time.Second, 20 * time.Second, 20 * time.Second}},
		"no wait where the exit carries it": {noBackoff, []time.Duration{0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var f *FailureHistory
			for i, want := range c.want {
				f = nextFailure(f, Failed{Reason: "Error"}, at, c.b)
				if got := f.Until.Sub(at); got != want || f.Count != i+1 {
					t.Errorf("failure %d: wait %s, count %d, want %s", i+1, got, f.Count, want)
				}
			}
		})
	}
}

func TestCrashWaits(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	before := BackoffHistory{Wait: 40 * time.Second, Since: at.Add(-time.Hour)}
	ran := func(d time.Duration) Exit { return Exit{StartedAt: at.Add(-d), FinishedAt: at} }
	for name, c := range map[string]struct {
		h     ContainerHistory
		exit  Exit
		wait  time.Duration
		since time.Time
	}{
		"the first end has no wait":                {ContainerHistory{}, ran(time.Second), 0, at},
		"the second waits 10 s":                    {ContainerHistory{Backoff: BackoffHistory{Since: at}}, ran(time.Second), 10 * time.Second, at},
		"waits double":                             {ContainerHistory{Backoff: before}, ran(time.Second), 80 * time.Second, at},
		"up to 5 min":                              {ContainerHistory{Backoff: BackoffHistory{Wait: 4 * time.Minute, Since: at}}, ran(time.Second), 5 * time.Minute, at},
		"10 min of running do not forget":          {ContainerHistory{Backoff: before}, ran(10 * time.Minute), 80 * time.Second, at},
		"more than 10 min do":                      {ContainerHistory{Backoff: before}, ran(10*time.Minute + 1), 0, at},
		"a start that is not known does not":       {ContainerHistory{Backoff: before}, Exit{FinishedAt: at}, 80 * time.Second, at},
		"a clock set forward is no running":        {ContainerHistory{Backoff: before, Stepped: time.Hour}, ran(time.Hour + time.Minute), 80 * time.Second, at},
		"nor is one set back a short run":          {ContainerHistory{Backoff: before, Stepped: -time.Hour}, ran(-49 * time.Minute), 0, at},
		"an end without a time counts from a look": {ContainerHistory{Backoff: before}, Exit{}, 80 * time.Second, at},
		"as does one in the future":                {ContainerHistory{Backoff: before}, Exit{FinishedAt: at.Add(time.Hour)}, 80 * time.Second, at},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.h.crashed(c.exit, at).Backoff
			if got.Wait != c.wait || !got.Since.Equal(c.since) {
				t.Errorf("wait %s since %s, want %s since %s", got.Wait, got.Since, c.wait, c.since)
			}
		})
	}
}
