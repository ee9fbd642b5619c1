package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// at is a time n seconds after some moment.
func at(n int) metav1.Time { return metav1.Unix(1_700_000_000+int64(n), 0) }

// conditions reads "Ready=True@5 example.com/gate=False@0".
func conditions(text string) (list []corev1.PodCondition) {
	for f := range strings.FieldsSeq(text) {
		var n int
		name, rest, _ := strings.Cut(f, "=")
		state, when, _ := strings.Cut(rest, "@")
		if _, err := fmt.Sscan(when, &n); err != nil {
			panic(err)
		}
		list = append(list, corev1.PodCondition{Type: corev1.PodConditionType(name), Status: corev1.ConditionStatus(state), LastTransitionTime: at(n)})
	}
	return list
}

func show(list []corev1.PodCondition) string {
	var b strings.Builder
	for i, c := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%s@%d", c.Type, c.Status, c.LastTransitionTime.Unix()-1_700_000_000)
	}
	return b.String()
}

func TestConditionsMerge(t *testing.T) {
	for name, c := range map[string]struct{ api, ours, want string }{
		"the first ones":                          {"", "Ready=False@1 Initialized=True@1", "Ready=False@1 Initialized=True@1"},
		"the time stays while the status does":    {"Ready=True@1", "Ready=True@9", "Ready=True@1"},
		"the time changes with the status":        {"Ready=True@1", "Ready=False@9", "Ready=False@9"},
		"others' are kept, in place":              {"gate=True@1 Ready=True@2 other=False@3", "Ready=False@9", "gate=True@1 Ready=False@9 other=False@3"},
		"others' are not ours to change":          {"gate=True@1", "gate=False@9", "gate=True@1"},
		"nor to add":                              {"", "gate=False@9", ""},
		"ours vanish when we say so":              {"PodResizePending=True@1 Ready=True@1", "Ready=True@1", "Ready=True@1"},
		"DisruptionTarget of the scheduler stays": {"DisruptionTarget=True@1", "Ready=True@9", "DisruptionTarget=True@1 Ready=True@9"},
		"DisruptionTarget of ours comes in":       {"", "DisruptionTarget=True@9", "DisruptionTarget=True@9"},
		"DisruptionTarget of both keeps its time": {"DisruptionTarget=True@1", "DisruptionTarget=True@9", "DisruptionTarget=True@1"},
		"one that we name twice is written once":  {"", "Ready=True@1 Ready=True@1", "Ready=True@1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := Merge(corev1.PodStatus{Conditions: conditions(c.api)}, corev1.PodStatus{Conditions: conditions(c.ours)})
			if diff := cmp.Diff(c.want, show(got.Conditions)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPhaseNeverGoesBack(t *testing.T) {
	const p, r, s, f, u = corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown
	for _, c := range []struct{ api, ours, want corev1.PodPhase }{
		{"", p, p}, {p, r, r}, {r, s, s}, {r, f, f}, {p, f, f}, {u, p, p},
		{r, p, r}, {s, r, s}, {f, r, f}, {s, f, s}, {f, s, f}, {f, "", f}, {r, "", r}, {r, u, r},
	} {
		got, _ := Merge(corev1.PodStatus{Phase: c.api}, corev1.PodStatus{Phase: c.ours})
		if got.Phase != c.want {
			t.Errorf("%q then %q is %q, want %q", c.api, c.ours, got.Phase, c.want)
		}
	}
}

func TestPodEndedByOthersIsNotReady(t *testing.T) {
	api := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "by hand", Conditions: conditions("Ready=False@5 gate=True@1")}
	ours := corev1.PodStatus{Phase: corev1.PodRunning, Reason: "x", Conditions: conditions("Ready=True@2 ContainersReady=True@2")}
	got, changed := Merge(api, ours)
	if want := "Ready=False@5 gate=True@1 ContainersReady=False@2"; show(got.Conditions) != want || got.Reason != "Evicted" || got.Message != "by hand" || !changed {
		t.Errorf("got %s %s %s, want %s", show(got.Conditions), got.Reason, got.Message, want)
	}
	if i := conditionAt(got.Conditions, corev1.ContainersReady); got.Conditions[i].Reason != "PodFailed" {
		t.Errorf("reason %q", got.Conditions[i].Reason)
	}
	if show(ours.Conditions) != "Ready=True@2 ContainersReady=True@2" {
		t.Error("the input was changed")
	}
}

func TestFieldsMerge(t *testing.T) {
	first, later := at(1), at(9)
	claim := "claim"
	api := corev1.PodStatus{
		StartTime: &first, QOSClass: corev1.PodQOSBurstable, HostIP: "10.0.0.1", HostIPs: []corev1.HostIP{{IP: "10.0.0.1"}},
		NominatedNodeName: "node", ObservedGeneration: 7, PodIP: "10.1.1.1",
		ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claim}},
	}
	got, changed := Merge(api, corev1.PodStatus{StartTime: &later, ObservedGeneration: 6, PodIP: "10.1.1.2"})
	want := api
	want.PodIP = "10.1.1.2"
	if diff := cmp.Diff(want, got); diff != "" || !changed {
		t.Error(changed, diff)
	}
}

func TestEqualStatusIsNoChange(t *testing.T) {
	half := metav1.NewTime(at(3).Add(500 * time.Millisecond))
	ours := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &half,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: half}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: half}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: half, ContainerID: "a"}}}},
	}
	api, changed := Merge(corev1.PodStatus{}, ours)
	if !changed {
		t.Error("the first status is no change")
	}
	// Through JSON, as the API keeps it: local times and whole seconds.
	api.StartTime = &metav1.Time{Time: api.StartTime.In(time.FixedZone("x", 3600))}
	if got, changed := Merge(api, ours); changed {
		t.Error(cmp.Diff(api, got))
	}
}

// container writes a container's status: name, id, restarts, then states as
// "run", "wait" or "end(ID@time)".
func container(name, id string, restarts int32, state, last string) corev1.ContainerStatus {
	parse := func(s string) (st corev1.ContainerState) {
		switch {
		case s == "run":
			st.Running = &corev1.ContainerStateRunning{}
		case s == "wait":
			st.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		case strings.HasPrefix(s, "end("):
			var n int
			id, when, _ := strings.Cut(strings.TrimSuffix(s[len("end("):], ")"), "@")
			if _, err := fmt.Sscan(when, &n); err != nil {
				panic(err)
			}
			st.Terminated = &corev1.ContainerStateTerminated{ContainerID: id, FinishedAt: at(n)}
		}
		return st
	}
	return corev1.ContainerStatus{Name: name, ContainerID: id, RestartCount: restarts, State: parse(state), LastTerminationState: parse(last)}
}

func showContainers(list []corev1.ContainerStatus) string {
	show := func(s corev1.ContainerState) string {
		switch {
		case s.Running != nil:
			return "run"
		case s.Waiting != nil:
			return "wait"
		case s.Terminated != nil:
			return fmt.Sprintf("end(%s@%d)", s.Terminated.ContainerID, s.Terminated.FinishedAt.Unix()-1_700_000_000)
		}
		return "-"
	}
	var all []string
	for _, c := range list {
		all = append(all, fmt.Sprintf("%s:%s#%d %s %s", c.Name, c.ContainerID, c.RestartCount, show(c.State), show(c.LastTerminationState)))
	}
	return strings.Join(all, ", ")
}

func TestEndsOfContainersAreNotLost(t *testing.T) {
	c := container
	for name, row := range map[string]struct {
		was, is corev1.ContainerStatus
		want    string
	}{
		"it starts":                              {c("app", "", 0, "wait", ""), c("app", "a", 0, "run", ""), "app:a#0 run -"},
		"it ends":                                {c("app", "a", 0, "run", ""), c("app", "a", 0, "end(a@1)", ""), "app:a#0 end(a@1) -"},
		"it waits for its restart":               {c("app", "a", 0, "end(a@1)", ""), c("app", "a", 0, "wait", "end(a@1)"), "app:a#0 wait end(a@1)"},
		"it waits, and we forgot the end":        {c("app", "a", 0, "end(a@1)", ""), c("app", "a", 0, "wait", ""), "app:a#0 wait end(a@1)"},
		"it runs again":                          {c("app", "a", 0, "end(a@1)", ""), c("app", "b", 1, "run", "end(a@1)"), "app:b#1 run end(a@1)"},
		"it runs again, and we forgot the end":   {c("app", "a", 0, "end(a@1)", ""), c("app", "b", 1, "run", ""), "app:b#1 run end(a@1)"},
		"what has ended doesn't run":             {c("app", "a", 0, "end(a@1)", ""), c("app", "a", 0, "run", ""), "app:a#0 end(a@1) -"},
		"we forgot the last end":                 {c("app", "b", 1, "run", "end(a@1)"), c("app", "b", 1, "run", ""), "app:b#1 run end(a@1)"},
		"the last end doesn't get older":         {c("app", "c", 2, "run", "end(b@5)"), c("app", "c", 2, "run", "end(a@1)"), "app:c#2 run end(b@5)"},
		"it ended twice meanwhile":               {c("app", "a", 0, "end(a@1)", ""), c("app", "c", 2, "end(c@9)", "end(b@5)"), "app:c#2 end(c@9) end(b@5)"},
		"it ended again within the same second":  {c("app", "a", 0, "end(a@1)", ""), c("app", "b", 1, "end(b@1)", "end(a@1)"), "app:b#1 end(b@1) end(a@1)"},
		"an older end after a newer one":         {c("app", "b", 1, "end(b@5)", "end(a@1)"), c("app", "a", 1, "end(a@1)", ""), "app:b#1 end(b@5) end(a@1)"},
		"the same end in better words":           {c("app", "a", 0, "end(a@1)", ""), c("app", "a", 0, "end(a@2)", ""), "app:a#0 end(a@2) -"},
		"the running one is the last that ended": {c("app", "b", 1, "run", "end(a@1)"), c("app", "b", 1, "end(b@2)", "end(a@1)"), "app:b#1 end(b@2) end(a@1)"},
		"the restart count doesn't fall":         {c("app", "b", 3, "run", ""), c("app", "c", 1, "run", ""), "app:c#3 run -"},
		"it vanishes":                            {c("app", "a", 0, "end(a@1)", ""), c("web", "x", 0, "run", ""), "web:x#0 run -, app:a#0 end(a@1) -"},
	} {
		t.Run(name, func(t *testing.T) {
			got := mergeContainers([]corev1.ContainerStatus{row.was}, []corev1.ContainerStatus{row.is})
			if diff := cmp.Diff(row.want, showContainers(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// statuses draws odd but possible statuses; ends says when which container ended.
func statuses(t *rapid.T, label string, ends map[string]int) corev1.PodStatus {
	pick := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	var s corev1.PodStatus
	s.Phase = corev1.PodPhase(pick("", "Pending", "Running", "Succeeded", "Failed"))
	s.ObservedGeneration = rapid.Int64Range(0, 3).Draw(t, label)
	if n := rapid.IntRange(0, 3).Draw(t, label); n > 0 {
		start := at(n)
		s.StartTime = &start
	}
	var all []string
	for _, name := range []string{"Ready", "ContainersReady", "gate", "DisruptionTarget", "PodResizePending"} {
		if pick("", "x") != "" {
			all = append(all, fmt.Sprintf("%s=%s@%d", name, pick("True", "False"), rapid.IntRange(0, 9).Draw(t, label)))
		}
	}
	s.Conditions = conditions(strings.Join(all, " "))
	for _, name := range []string{"app", "web"} {
		if pick("", "x") == "" {
			continue
		}
		end := func(id string) string { return fmt.Sprintf("end(%s@%d)", id, ends[id]) }
		state, last := pick("a", "b", "c"), pick("a", "b", "c")
		if state == last {
			last = "d"
		}
		c := container(name, pick("", "a", "b", "c"), int32(rapid.IntRange(0, 3).Draw(t, label)), pick("run", "wait", end(state)), pick("", end(last)))
		s.ContainerStatuses = append(s.ContainerStatuses, c)
	}
	return s
}

func TestMergeTakesNothingBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ends := map[string]int{"d": 0}
		for _, id := range []string{"a", "b", "c"} {
			ends[id] = rapid.IntRange(0, 9).Draw(t, "ends")
		}
		api, ours := statuses(t, "api", ends), statuses(t, "ours", ends)
		apiBefore, oursBefore := api.DeepCopy(), ours.DeepCopy()
		got, changed := Merge(api, ours)
		if !equality.Semantic.DeepEqual(*apiBefore, api) || !equality.Semantic.DeepEqual(*oursBefore, ours) {
			t.Fatal("the input was changed")
		}
		if changed == equality.Semantic.DeepEqual(api, got) {
			t.Fatal("changed is wrong")
		}
		if again, changed := Merge(got, ours); changed {
			t.Fatalf("merging again changes: %s", cmp.Diff(got, again))
		}
		if phaseRank(got.Phase) < phaseRank(api.Phase) || terminal(api.Phase) && got.Phase != api.Phase {
			t.Fatalf("phase %s after %s", got.Phase, api.Phase)
		}
		if terminal(got.Phase) && got.Phase != ours.Phase && readyStatus(&got) == corev1.ConditionTrue {
			t.Fatal("ended and ready")
		}
		if api.StartTime != nil && !got.StartTime.Equal(api.StartTime) || got.ObservedGeneration < api.ObservedGeneration {
			t.Fatal("start time or generation")
		}
		for _, c := range Foreign(api.Conditions) {
			if i := conditionAt(got.Conditions, c.Type); i < 0 || c.Type != corev1.DisruptionTarget && got.Conditions[i] != c {
				t.Fatalf("lost %s", c.Type)
			}
		}
		for _, c := range got.Conditions {
			if i := conditionAt(api.Conditions, c.Type); i >= 0 && api.Conditions[i].Status == c.Status && !api.Conditions[i].LastTransitionTime.Equal(&c.LastTransitionTime) {
				t.Fatalf("%s moved its time without its status", c.Type)
			}
		}
		for _, was := range api.ContainerStatuses {
			i := containerAt(got.ContainerStatuses, was.Name)
			if i < 0 || got.ContainerStatuses[i].RestartCount < was.RestartCount {
				t.Fatalf("lost %s or restarts of it", was.Name)
			}
			is := got.ContainerStatuses[i]
			if end := was.State.Terminated; end != nil && newer(end, is.State.Terminated) && newer(end, is.LastTerminationState.Terminated) {
				t.Fatalf("lost the end of %s: %s", was.Name, showContainers([]corev1.ContainerStatus{was, is}))
			}
		}
	})
}
