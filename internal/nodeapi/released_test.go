package nodeapi

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
)

func TestWhatBecomesOfAPodThatARunLetsGoOf(t *testing.T) {
	f := &fakeAgent{pods: []*corev1.Pod{
		podOf("web", "u", corev1.PodStatus{Phase: corev1.PodRunning}),
		podOf("job", "ended", corev1.PodStatus{Phase: corev1.PodFailed}),
	}}
	c, _ := serve(t, f)
	zero := int64(0)
	for _, r := range []struct {
		uid    types.UID
		waited Waited
		grace  *int64
		want   Released
		asked  string
	}{
		{"u", Waited{}, nil, Ends, "delete uid u own"},
		{"u", Waited{90 * time.Second, "app: HTTP 404 & more"}, &zero, Ends, "time out uid u after 1m30s (app: HTTP 404 & more) 0"},
		{"u", Waited{Time: time.Second}, nil, Ends, "time out uid u after 1s () own"},
		{"ended", Waited{}, nil, HadEnded, ""},
		{"ended", Waited{Time: time.Second}, nil, HadEnded, ""},
	} {
		before := len(f.asked())
		got, err := c.Release(t.Context(), "run", agent.Ref{Namespace: "default", Name: "web", UID: r.uid}, r.waited, r.grace)
		var want []string
		if r.asked != "" {
			want = []string{r.asked}
		}
		if asked := f.asked()[before:]; err != nil || got != r.want || !slices.Equal(asked, want) {
			t.Errorf("pod %s, waited %+v: %v, %v, the agent was asked %q; want %v, %q", r.uid, r.waited, got, err, asked, r.want, want)
		}
	}
	var answer *Error
	if _, err := c.Release(t.Context(), "run", agent.Ref{Namespace: "default", Name: "web", UID: "gone"}, Waited{Time: time.Second}, nil); !errors.As(err, &answer) || answer.Code != 404 {
		t.Errorf("a pod that is not known: %v", err)
	}
}

func TestDescriptionsAreThoseOfThePodsThatAreAskedFor(t *testing.T) {
	f := &fakeAgent{pods: []*corev1.Pod{podOf("web", "u", corev1.PodStatus{}), podOf("db", "v", corev1.PodStatus{})}}
	c, _ := serve(t, f)
	all, err := c.Describe(t.Context(), []types.UID{"v", "gone"})
	if err != nil || len(all) != 1 || all[0].Pod.Name != "db" || all[0].Events[0].Count != 3 {
		t.Errorf("%+v, %v", all, err)
	}
}
